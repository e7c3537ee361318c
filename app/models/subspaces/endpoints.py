"""/v1/spaces/{space}/subspaces/{model}: the span of a client's samples, in a space of subspaces."""

from __future__ import annotations

from fastapi import Response

from app.infra.errors import (
    ModelNotFound,
    NotAcceptable,
    PreconditionFailed,
    QuotaExceeded,
)
from app.infra.http.answers import Answer
from app.infra.http.dependencies import Accept
from app.infra.http.requests.negotiation import choose
from app.infra.http.requests.preconditions import NOT_MODIFIED, PutCondition, is_known
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.models.catalog.dependencies import ModelName, NewTags
from app.models.catalog.endpoints.payloads import SUBSPACE_BODY, SUBSPACE_CONTENT, SubspacePayload
from app.models.catalog.puts import Put
from app.models.catalog.reader import ModelReader
from app.models.catalog.schemas import ModelOut, etag
from app.models.catalog.shared_commits import SharedCommits
from app.models.spaces.dependencies import (
    KindName,
)
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext, WritingContext
from modelkin import wire
from modelkin.errors import SpaceMismatch

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/subspaces",
    tags=["models"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.put(
    MODEL,
    operation_id="put_subspace",
    summary="Store a data subspace",
    status_code=201,
    refuses=(SpaceMismatch, PreconditionFailed, QuotaExceeded),
    responses={200: {"model": ModelOut, "description": "Replaced, or the same content again"}},
    openapi_extra=SUBSPACE_BODY,
)
def put(
    context: WritingContext,
    spaces: Service[SpaceService],
    commits: Service[SharedCommits],
    payload: SubspacePayload,
    name: ModelName,
    tags: NewTags,
    precondition: PutCondition,
    space_name: KindName,
) -> Answer[ModelOut]:
    """Store the subspace of a client's data. Its readers see the mean sample of each class.

    `.npy` is one basis, of features x columns, of any orthogonality.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="subspaces")
        subspace = payload.subspace(space)
        put = Put(name, subspace, tags=tags, precondition=precondition)
        session.release()  # nothing is held while it waits for the disk
        stored = commits.put(space, put)
    return Answer(
        ModelOut.of(space, stored.model),
        status=201 if stored.status == "created" else 200,
        headers=etag(stored.model),
    )


@routes.get(
    MODEL,
    operation_id="get_subspace",
    summary="Download a data subspace",
    response_class=Response,
    refuses=(ModelNotFound, NotAcceptable),
    responses={200: {"content": SUBSPACE_CONTENT, "description": "The subspace"}, **NOT_MODIFIED},
)
def get(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    name: ModelName,
    space_name: KindName,
    accept: Accept = None,
) -> Response:
    """The subspace of a model; as `.npy` the columns of all its blocks side by side."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="subspaces")
        media_type = choose(accept, wire.SUBSPACE_TYPES)
        subject = reader.stored_subject(session, space, name)
        assert subject.subspace is not None  # the space holds nothing else
        assert subject.model is not None  # it is stored
        headers = {**etag(subject.model), "Vary": "Accept"}
        if is_known(context.request, subject.model.version_tag):
            return Response(status_code=304, headers=headers)
        body = wire.dump_subspace(subject.subspace, media_type)
    return Response(body, media_type=media_type, headers=headers)
