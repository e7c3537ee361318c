"""/v1/spaces/{space}/supports/{model}: storing a support, changing it and getting it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import Query, Response

from app.infra.errors import (
    ModelNotFound,
    NotAcceptable,
    PreconditionFailed,
    PreconditionRequired,
    QuotaExceeded,
    RevisionNotFound,
    SupportMissing,
)
from app.infra.http.answers import Answer, AnswerMemory, binary_answer, streamed_answer
from app.infra.http.dependencies import Accept
from app.infra.http.requests.memory_budget import Reservation
from app.infra.http.requests.negotiation import choose
from app.infra.http.requests.preconditions import (
    NOT_MODIFIED,
    PutCondition,
    RequiredMatch,
    entity_tag,
    is_known,
    match,
)
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.models.catalog.dependencies import ModelName, NewTags, Stated
from app.models.catalog.endpoints.payloads import (
    PATCH_BODY,
    SUPPORT_BODY,
    SUPPORT_CONTENT,
    PatchPayload,
    SupportPayload,
)
from app.models.catalog.patches import PatchService
from app.models.catalog.puts import Put
from app.models.catalog.reader import ModelReader
from app.models.catalog.revisions import RevisionService
from app.models.catalog.schemas import StoredModelOut, etag
from app.models.catalog.shared_commits import SharedCommits
from app.models.catalog.writer import ModelWriter
from app.models.spaces.dependencies import (
    KindName,
)
from app.models.spaces.origins import require_same_origin
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext, WritingContext
from modelkin import wire
from modelkin.core.indices import index_dtype
from modelkin.core.support import Support
from modelkin.errors import SpaceMismatch

__all__ = ["routes"]

_MAX_REVISION = 2**63 - 1
_MAX_JSON_INDICES: Final = 1_000_000
_COPIES_PER_ANSWER: Final = 3
"""Copies of the indices for an answer: read, written, and one in between."""

routes = Routes(
    prefix="/v1/spaces/{space}/supports",
    tags=["models"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.put(
    MODEL,
    operation_id="put_support",
    summary="Store a support",
    status_code=201,
    response_model_exclude_unset=True,
    refuses=(SpaceMismatch, PreconditionFailed, QuotaExceeded),
    responses={
        200: {"model": StoredModelOut, "description": "Replaced, or the same content again"}
    },
    openapi_extra=SUPPORT_BODY,
)
def put(
    context: WritingContext,
    spaces: Service[SpaceService],
    writer: Service[ModelWriter],
    commits: Service[SharedCommits],
    payload: SupportPayload,
    name: ModelName,
    tags: NewTags,
    origin: Stated,
    precondition: PutCondition,
    space_name: KindName,
) -> Answer[StoredModelOut]:
    """Store a support, whole, with its tags. Once this answers, it is durable.

    The same content again changes nothing. A model that had only a signature becomes a full one.
    What `importance`, `base` and `layout` say of the support is compared with the space's.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        session.release()  # nothing is held while the body is decoded
        require_same_origin(space, origin)  # and under the lock once more
        support = payload.support(space.num_parameters)
        prepared = writer.prepare(session, space, name, support)
        put = Put(name, prepared, tags=tags, precondition=precondition, origin=origin)
        stored = commits.put(space, put)
    return Answer(
        StoredModelOut.of_upload(space, stored.model, origin),
        status=201 if stored.status == "created" else 200,
        headers=etag(stored.model),
    )


@routes.patch(
    MODEL,
    operation_id="patch_support",
    summary="Change a support by a delta",
    response_model_exclude_unset=True,
    refuses=(
        ModelNotFound,
        SupportMissing,
        SpaceMismatch,
        PreconditionFailed,
        PreconditionRequired,
        QuotaExceeded,
    ),
    openapi_extra=PATCH_BODY,
)
def patch(
    context: WritingContext,
    spaces: Service[SpaceService],
    patches: Service[PatchService],
    writer: Service[ModelWriter],
    commits: Service[SharedCommits],
    precondition: RequiredMatch,
    payload: PatchPayload,
    name: ModelName,
    tags: NewTags,
    origin: Stated,
    space_name: KindName,
) -> Answer[StoredModelOut]:
    """Change a support by the indices that it gains and loses, against the `ETag` of a revision.

    The result stands as if it had been sent whole: a revision of its own, or nothing where the
    delta is empty. An index to add that is there, or to remove that is not, is a 422.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        require_same_origin(space, origin)  # and under the lock once more
        model = patches.subject(session, space, name, precondition)
        session.release()  # nothing is held while the body is decoded
        payload.reserve_for_patch(space.num_parameters, model.support_size)
        support = patches.apply(space, model, payload.patch)
        prepared = writer.prepare(session, space, name, support)
        unchanged = match(entity_tag(model.version_tag))
        put = Put(name, prepared, tags=tags, precondition=unchanged, origin=origin)
        stored = commits.put(space, put)
    return Answer(StoredModelOut.of_upload(space, stored.model, origin), headers=etag(stored.model))


@routes.get(
    MODEL,
    operation_id="get_support",
    summary="Download a support",
    response_class=Response,
    refuses=(ModelNotFound, RevisionNotFound, SupportMissing, NotAcceptable),
    responses={200: {"content": SUPPORT_CONTENT, "description": "The support"}, **NOT_MODIFIED},
)
def get(
    context: ReadingContext,
    spaces: Service[SpaceService],
    revisions: Service[RevisionService],
    reader: Service[ModelReader],
    name: ModelName,
    memory: AnswerMemory,
    space_name: KindName,
    accept: Accept = None,
    revision: Annotated[
        int | None, Query(ge=1, le=_MAX_REVISION, description="as of this revision of the model")
    ] = None,
) -> Response:
    """The support, in the format that `Accept` asks for; the native one by default.

    Of an ordered space that or JSON: Roaring and raw indices have no place for octaves.
    Of a `revision` too, while its support is kept: `GET .../revisions/{model}` says which are.
    Beyond a million indices a support is not answered as JSON: 406.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        choose(accept, wire.ORDERED_TYPES if space.ordered else wire.SUPPORT_TYPES)
        if revision is not None:
            found = revisions.revision(session, space, name, revision)
            session.release()  # nothing is held while it waits for memory
            media_type = _choose_and_reserve(accept, space, found.support_size, memory)
            support = revisions.support(session, space, name, revision)
            return _answer(support, media_type, {}, memory)
        model = reader.model(session, space, name)
        if model.kind == "support" and is_known(context.request, model.version_tag):
            return Response(status_code=304, headers={**etag(model), "Vary": "Accept"})
        session.release()  # nor while the support is read, written and sent
        media_type = _choose_and_reserve(accept, space, model.support_size, memory)
    return _answer(reader.support(space, model), media_type, etag(model), memory)


def _choose_and_reserve(accept: str | None, space: SpaceRecord, k: int, memory: Reservation) -> str:
    """The media type for a support of K indices, once there is memory for it."""
    types = wire.ORDERED_TYPES if space.ordered else wire.SUPPORT_TYPES
    binary = [name for name in types if name != wire.JSON]
    try:
        media_type = choose(accept, types if k <= _MAX_JSON_INDICES else binary)
    except NotAcceptable:
        raise NotAcceptable(
            f"this support has {k} indices, and JSON is for {_MAX_JSON_INDICES} at most: ask for "
            f"{', '.join(binary)}"
        ) from None
    bytes_each = index_dtype(space.num_parameters).itemsize + space.ordered
    memory.take(_COPIES_PER_ANSWER * k * bytes_each)
    return media_type


def _answer(
    support: Support, media_type: str, headers: Mapping[str, str], memory: Reservation
) -> Response:
    headers = {**headers, "Vary": "Accept"}
    if media_type == wire.JSON:
        return streamed_answer(wire.support_json_pieces(support), media_type, headers)
    content = wire.dump_support(support, media_type)
    memory.keep(len(content))
    return binary_answer(content, media_type, headers)
