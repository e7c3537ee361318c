"""/v1/spaces/{space}/clusters/{cluster}/learngene: what a newcomer of a cluster starts from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Response

from app.auth.dependencies import AUTHENTICATED, REFUSALS, Caller, ValuesTenant, WritingTenant
from app.errors import (
    ClusteringNotFound,
    ClusterNotFound,
    LearngeneNotFound,
    PreconditionFailed,
    QuotaExceeded,
    RangeNotSatisfiable,
    StorageFull,
    ValuesNotKept,
)
from app.infra.db.database import Reader
from app.infra.http.answers import AnswerMemory, PageLimit, page_answer, streamed_answer
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Cursor, Reading, Writing
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.openapi import problems
from app.infra.http.preconditions import entity_tag
from app.infra.http.services import Service
from app.learngenes.dependencies import (
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
from app.learngenes.records import LearngeneRecord
from app.learngenes.schemas import LearngeneOut, LearngenePage, LearngeneSummary
from app.learngenes.service import LearngeneService
from app.spaces.dependencies import SPACE_PROBLEMS, KnownSpace, WritableSpace
from app.spaces.records import SpaceRecord
from modelkin import wire
from modelkin.errors import InvalidLearngene, InvalidParameter

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}",
    tags=["learngenes"],
    route_class=ThreadRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

_ONE: Final = "/clusters/{cluster}/learngene"
_PIECE_BYTES: Final = 1 << 18
_BYTES_OF_A_TENSOR: Final = 2000
"""Memory of a tensor in an answer, as read and as written."""
_LEARNGENE_PROBLEMS: Final = (*SPACE_PROBLEMS, LearngeneNotFound, InvalidParameter)


@router.put(
    _ONE,
    operation_id="put_learngene",
    summary="Publish a learngene of a cluster",
    status_code=201,
    responses={
        200: {"model": LearngeneOut, "description": "The content of the newest version again"},
        **problems(
            *SPACE_PROBLEMS,
            *BODY_PROBLEMS,
            ClusterNotFound,
            ClusteringNotFound,
            InvalidLearngene,
            InvalidParameter,
            ValuesNotKept,
            PreconditionFailed,
            StorageFull,
            QuotaExceeded,
        ),
    },
    openapi_extra=LEARNGENE_BODY,
)
def put(
    learngenes: Service[LearngeneService],
    payload: LearngenePayload,  # read before a connection is taken: a slow upload holds none
    identity: Caller,
    tenant: WritingTenant,
    cluster: ClusterName,
    given: FileDetails,
    space: WritableSpace,
    reading: Reading,
    response: Response,
    precondition: LearngeneMatch,
) -> LearngeneOut:
    """Publish a new version of a cluster's learngene, or of that of the whole space.

    A manifest says where the file is, and the service never fetches it. The file itself, as
    `application/vnd.safetensors`, is taken only where the operator keeps values, and of keys with
    the scope `values`. The content of the newest version again changes nothing, but that its file
    is kept if it comes now.
    """
    del tenant
    reading.rollback()  # nothing is held while the body is decoded
    content, details = payload.decoded(given)
    learngene, is_new = learngenes.publish(
        reading, identity, space, cluster, content, details, precondition
    )
    response.status_code = 201 if is_new else 200
    response.headers["ETag"] = entity_tag(learngene.version_tag)
    return _shown(learngenes, reading, space, learngene)


@router.get(
    _ONE,
    operation_id="get_learngene",
    summary="Show the manifest of a learngene",
    responses=problems(*_LEARNGENE_PROBLEMS),
)
def show(
    learngenes: Service[LearngeneService],
    cluster: ClusterName,
    space: KnownSpace,
    session: Reading,
    response: Response,
    memory: AnswerMemory,
    version: Version = None,
) -> LearngeneOut:
    """The manifest of a cluster's learngene; of the newest version, unless another one is named."""
    found = learngenes.get(session, space, cluster, version)
    session.release()  # nothing is held while it waits for memory
    memory.take(found.num_tensors * _BYTES_OF_A_TENSOR)
    response.headers["ETag"] = entity_tag(found.version_tag)
    return _shown(learngenes, session, space, found)


@router.get(
    _ONE + "/file",
    operation_id="get_learngene_file",
    summary="Download the file of a learngene",
    response_class=Response,
    responses={
        200: {"content": LEARNGENE_FILE, "description": "The file"},
        206: {"content": LEARNGENE_FILE, "description": "The part of it that `Range` asks for"},
        **problems(*_LEARNGENE_PROBLEMS, ValuesNotKept, RangeNotSatisfiable),
    },
)
def read(
    learngenes: Service[LearngeneService],
    tenant: ValuesTenant,
    cluster: ClusterName,
    space: KnownSpace,
    session: Reading,
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
    del tenant
    found = learngenes.get(session, space, cluster, version)
    session.release()  # nothing is held while the file is sent
    data = learngenes.file(found)
    tag = entity_tag(found.digest)
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


@router.delete(
    _ONE,
    operation_id="delete_learngene",
    summary="Delete a version of a learngene",
    responses=problems(*_LEARNGENE_PROBLEMS, StorageFull),
    status_code=204,
)
def delete(
    learngenes: Service[LearngeneService],
    cluster: ClusterName,
    space: WritableSpace,
    session: Writing,
    version: Version = None,
) -> None:
    """Delete a version of a cluster's learngene, by default the newest, with its file."""
    learngenes.delete(session, space, cluster, version)


@router.get(
    "/learngenes",
    operation_id="list_learngenes",
    summary="List the learngenes of a space",
    responses=problems(*SPACE_PROBLEMS, InvalidParameter),
    response_model=LearngenePage,
)
def list_learngenes(
    learngenes: Service[LearngeneService],
    limit: PageLimit,
    cluster: ClusterFilter,
    space: KnownSpace,
    session: Reading,
    cursor: Cursor = None,
) -> Response:
    """The learngenes of the space, newest first, without their tensors."""
    page = learngenes.list(session, space, cluster, limit=limit, cursor=cursor)
    stale = learngenes.stale_among(session, space, page.items)
    items = (LearngeneSummary.summary(space, e, stale=e.id in stale) for e in page.items)
    return page_answer(items, page.next_cursor)


def _shown(
    learngenes: LearngeneService, session: Reader, space: SpaceRecord, learngene: LearngeneRecord
) -> LearngeneOut:
    tensors = learngenes.tensors(session, learngene)
    stale = learngenes.is_stale(session, space, learngene)
    return LearngeneOut.of(space, learngene, tensors, stale=stale)


def _pieces(data: memoryview, begin: int, end: int) -> Iterator[bytes]:
    for at in range(begin, end, _PIECE_BYTES):
        yield bytes(data[at : min(end, at + _PIECE_BYTES)])
