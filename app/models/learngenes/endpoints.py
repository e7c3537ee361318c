"""/v1/spaces/{space}/clusters/{cluster}/learngene: the starting point of a cluster's newcomers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from fastapi import Header, Response

from app.infra.db.database import Reader
from app.infra.errors import (
    ClusteringNotFound,
    ClusterNotFound,
    LearngeneNotFound,
    PreconditionFailed,
    QuotaExceeded,
    RangeNotSatisfiable,
    ValuesNotKept,
)
from app.infra.http.answers import (
    Answer,
    AnswerMemory,
    PageLimit,
    json_answer,
    page_answer,
    streamed_answer,
)
from app.infra.http.dependencies import Cursor
from app.infra.http.requests.preconditions import NOT_MODIFIED, entity_tag, is_known
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.infra.storage.guarded_maps import intact_maps
from app.models.learngenes.dependencies import (
    LEARNGENE_BODY,
    LEARNGENE_FILE,
    ClusterFilter,
    ClusterName,
    FileDetails,
    LearngeneMatch,
    LearngenePayload,
    Version,
    byte_range,
)
from app.models.learngenes.records import LearngeneRecord
from app.models.learngenes.schemas import LearngeneOut, LearngenePage, LearngeneSummary
from app.models.learngenes.service import LearngeneService
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    ReadingContext,
    ValuesContext,
    WritingContext,
)
from modelkin import wire
from modelkin.errors import InvalidParameter

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}",
    tags=["learngenes"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

_ONE: Final = "/clusters/{cluster}/learngene"
_PIECE_BYTES: Final = 1 << 18
_BYTES_OF_A_TENSOR: Final = 2000
"""Memory of a tensor in an answer, as read and as written."""
_PROBLEMS: Final = (LearngeneNotFound, InvalidParameter)


@routes.put(
    _ONE,
    operation_id="put_learngene",
    summary="Publish a learngene of a cluster",
    status_code=201,
    refuses=(ClusterNotFound, ClusteringNotFound, PreconditionFailed, QuotaExceeded),
    responses={
        200: {"model": LearngeneOut, "description": "The content of the newest version again"}
    },
    openapi_extra=LEARNGENE_BODY,
)
def put(
    context: WritingContext,
    spaces: Service[SpaceService],
    learngenes: Service[LearngeneService],
    payload: LearngenePayload,
    cluster: ClusterName,
    given: FileDetails,
    precondition: LearngeneMatch,
    space_name: SpaceName,
) -> Answer[LearngeneOut]:
    """Publish a new version of a cluster's learngene, or of that of the whole space.

    A manifest says where the file is, and the service never fetches it. The file itself, as
    `application/vnd.safetensors`, is taken only where the operator keeps values, and of keys with
    the scope `values`. The content of the newest version again changes nothing, but that its file
    is kept if it comes now.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        session.release()  # nothing is held while the body is decoded
        content, details = payload.decode(given)
        learngene, is_new = learngenes.publish(
            session, context.identity, space, cluster, content, details, precondition
        )
        return Answer(
            _learngene_out(learngenes, session, space, learngene),
            status=201 if is_new else 200,
            headers={"ETag": entity_tag(learngene.version_tag)},
        )


@routes.get(
    _ONE,
    operation_id="get_learngene",
    summary="Show the manifest of a learngene",
    refuses=_PROBLEMS,
    response_model=LearngeneOut,
    responses=NOT_MODIFIED,
)
def show(
    context: ReadingContext,
    spaces: Service[SpaceService],
    learngenes: Service[LearngeneService],
    cluster: ClusterName,
    memory: AnswerMemory,
    space_name: SpaceName,
    version: Version = None,
) -> Response:
    """The manifest of a cluster's learngene; of the newest version, unless another one is named."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        found = learngenes.get(session, space, cluster, version)
        session.release()  # nothing is held while it waits for memory
        headers = {"ETag": entity_tag(found.version_tag)}
        if is_known(context.request, found.version_tag):
            return Response(status_code=304, headers=headers)
        memory.take(found.num_tensors * _BYTES_OF_A_TENSOR)
        return json_answer(_learngene_out(learngenes, session, space, found), headers=headers)


@routes.get(
    _ONE + "/file",
    operation_id="get_learngene_file",
    summary="Download the file of a learngene",
    response_class=Response,
    refuses=(*_PROBLEMS, ValuesNotKept, RangeNotSatisfiable),
    responses={
        200: {"content": LEARNGENE_FILE, "description": "The file"},
        206: {"content": LEARNGENE_FILE, "description": "The part of it that `Range` asks for"},
        **NOT_MODIFIED,
    },
)
def read(
    context: ValuesContext,
    spaces: Service[SpaceService],
    learngenes: Service[LearngeneService],
    cluster: ClusterName,
    space_name: SpaceName,
    version: Version = None,
    range_: Annotated[
        str | None, Header(alias="Range", description="`bytes=0-1023`; several ranges are ignored")
    ] = None,
    if_range: Annotated[
        str | None,
        Header(alias="If-Range", description="the `ETag`: of another file all is answered"),
    ] = None,
) -> Response:
    """The file of a learngene, where the service keeps it; its `ETag` is the digest.

    Else 409 `values_not_kept`, with the reference to it in its owner's hub.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        found = learngenes.get(session, space, cluster, version)
        session.release()  # nothing is held while the file is sent
        data = learngenes.file(found)
        tag = entity_tag(found.digest)
        if is_known(context.request, found.digest):
            return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "private"})
        part = byte_range(range_, len(data)) if if_range in {None, tag} else None
        begin, end = part or (0, len(data))
        headers = {
            "ETag": tag,
            "Accept-Ranges": "bytes",
            "Cache-Control": "private",
            "Content-Length": str(end - begin),
        }
        if part is not None:
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        answer = streamed_answer(_pieces(data, begin, end), wire.SAFETENSORS, headers)
        answer.status_code = 200 if part is None else 206
    return answer


@routes.delete(
    _ONE,
    operation_id="delete_learngene",
    summary="Delete a version of a learngene",
    refuses=_PROBLEMS,
    status_code=204,
)
def delete(
    context: WritingContext,
    spaces: Service[SpaceService],
    learngenes: Service[LearngeneService],
    cluster: ClusterName,
    space_name: SpaceName,
    version: Version = None,
) -> None:
    """Delete a version of a cluster's learngene, by default the newest, with its file."""
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        learngenes.delete(session, space, cluster, version)


@routes.get(
    "/learngenes",
    operation_id="list_learngenes",
    summary="List the learngenes of a space",
    response_model=LearngenePage,
)
def list_learngenes(
    context: ReadingContext,
    spaces: Service[SpaceService],
    learngenes: Service[LearngeneService],
    space_name: SpaceName,
    limit: PageLimit,
    cluster: ClusterFilter,
    cursor: Cursor = None,
) -> Response:
    """The learngenes of the space, newest first, without their tensors."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        page = learngenes.list(session, space, cluster, limit=limit, cursor=cursor)
        stale = learngenes.stale_among(session, space, page.items)
        items = (LearngeneSummary.summary(space, e, stale=e.id in stale) for e in page.items)
    return page_answer(items, page.next_cursor)


def _learngene_out(
    learngenes: LearngeneService, session: Reader, space: SpaceRecord, learngene: LearngeneRecord
) -> LearngeneOut:
    tensors = learngenes.tensors(session, learngene)
    stale = learngenes.is_stale(session, space, learngene)
    return LearngeneOut.of(space, learngene, tensors, stale=stale)


def _pieces(data: memoryview, begin: int, end: int) -> Iterator[bytes]:
    for at in range(begin, end, _PIECE_BYTES):
        with intact_maps():
            piece = bytes(data[at : min(end, at + _PIECE_BYTES)])
        yield piece
