"""/v1/spaces/{space}/merges: averages of models through a mailbox that cannot read them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Header, Response

from app.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    AuthenticatedJsonRoute,
    Caller,
    WritingTenant,
)
from app.catalog.dependencies import ModelName
from app.errors import (
    ClusteringNotFound,
    Conflict,
    Forbidden,
    MergeClosed,
    MergeExists,
    MergeNotFound,
    ModelNotFound,
    QueueFull,
    QuotaExceeded,
    RateLimited,
    StorageFull,
)
from app.infra.http.answers import PageLimit, page_answer
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Cursor, Reading, Turn, Writing
from app.infra.http.endpoint_threads import ThreadRoute, in_endpoint_thread
from app.infra.http.event_stream import EVENTS, EventStream, known_revision
from app.infra.http.openapi import problems
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.infra.http.turns import counts_as
from app.merges.dependencies import (
    CELL_BODY,
    CELL_CONTENT,
    CellAddress,
    CellData,
    MemberToken,
    MergeName,
    ResultAddress,
)
from app.merges.mailbox import Mailbox
from app.merges.records import MergeRecord
from app.merges.schemas import (
    CellOut,
    JoinIn,
    JoinOut,
    MergeIn,
    MergeOut,
    MergePage,
    MergeSummary,
    VerdictIn,
)
from app.merges.service import MergeService
from app.merges.watcher import MergeWatcher
from app.spaces.dependencies import SPACE_PROBLEMS, KnownSpace, WritableSpace
from modelkin import wire
from modelkin.errors import InvalidCell, InvalidParameter

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/merges",
    tags=["merges"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)
_binary = APIRouter(route_class=ThreadRoute)
"""Routes whose body is not JSON."""

_CELL = "/{merge}/cells/{attempt}/{shard}/{piece}" + MODEL
_RESULT = "/{merge}/results/{shard}/{piece}"
_MERGE_PROBLEMS = (*SPACE_PROBLEMS, MergeNotFound)


@router.put(
    "/{merge}",
    operation_id="create_merge",
    summary="Create a merge of models",
    status_code=201,
    responses={
        200: {"model": MergeOut, "description": "The same request has created it before"},
        **problems(
            *SPACE_PROBLEMS,
            *BODY_PROBLEMS,
            ModelNotFound,
            ClusteringNotFound,
            InvalidParameter,
            MergeExists,
            QuotaExceeded,
            StorageFull,
        ),
    },
)
@counts_as("heavy")
def create(
    merges: Service[MergeService],
    tenant: WritingTenant,
    name: MergeName,
    body: Annotated[MergeIn, Body()],
    space: WritableSpace,
    session: Reading,
    turn: Turn,
    response: Response,
) -> MergeOut:
    """Create a merge, whose members and weights are settled now.

    Then each member joins it. The service gets sealed cells alone, and cannot open them.
    """
    merge, is_new = merges.put(session, tenant, space, name, body.wanted(), turn)
    response.status_code = 201 if is_new else 200
    return _shown(merges, session, space, merge.name)


@router.get(
    "",
    operation_id="list_merges",
    summary="List the merges of a space",
    responses=problems(*SPACE_PROBLEMS, InvalidParameter),
    response_model=MergePage,
)
def list_merges(
    merges: Service[MergeService],
    limit: PageLimit,
    space: KnownSpace,
    session: Reading,
    cursor: Cursor = None,
) -> Response:
    """The merges of the space, newest first, without their parties."""
    page = merges.list(session, space, limit=limit, cursor=cursor)
    items = (MergeSummary.summary(space, merge) for merge in page.items)
    return page_answer(items, page.next_cursor)


@router.get(
    "/{merge}",
    operation_id="get_merge",
    summary="Show the state of a merge",
    responses=problems(*_MERGE_PROBLEMS),
)
def show(
    merges: Service[MergeService], name: MergeName, space: KnownSpace, session: Reading
) -> MergeOut:
    """One merge: its state, who is awaited, and the roster once joining has ended."""
    return _shown(merges, session, space, name)


@router.delete(
    "/{merge}",
    operation_id="delete_merge",
    summary="Delete a merge with all it holds",
    responses=problems(*_MERGE_PROBLEMS, StorageFull),
    status_code=204,
)
def delete(
    merges: Service[MergeService],
    tenant: WritingTenant,
    name: MergeName,
    space: WritableSpace,
    session: Writing,
) -> None:
    """Delete a merge with all cells and results, whatever its state."""
    del tenant
    merges.delete(session, space, name)


@in_endpoint_thread
def _merge(
    merges: Service[MergeService], name: MergeName, space: KnownSpace, session: Reading
) -> MergeRecord:
    return merges.get(session, space, name)[0]


KnownMerge = Annotated[MergeRecord, Depends(_merge)]


@router.get(
    "/{merge}/events",
    operation_id="follow_merge",
    summary="Follow a merge to its end",
    response_class=Response,
    responses={
        200: {
            "content": {EVENTS: {"schema": {"type": "string"}}},
            "description": "Server-sent events, whose `data` is the merge without its parties and "
            "whose `id` its revision: one at once, and one after each change",
        },
        204: {"description": "The merge has ended, and the client knows its last revision"},
        **problems(*_MERGE_PROBLEMS, QueueFull, RateLimited),
    },
)
def follow(
    watcher: Service[MergeWatcher],
    identity: Caller,
    merge: KnownMerge,
    space: KnownSpace,
    last: Annotated[
        str | None, Header(alias="Last-Event-ID", description="the `id` of the last event received")
    ] = None,
) -> Response:
    """Follow a merge to its end, as server-sent events."""
    known = known_revision(last)
    if merge.finished and known == merge.revision:
        return Response(status_code=204)
    shown = partial(MergeSummary.summary, space)
    return EventStream(partial(watcher.open, merge, identity), watcher, known, shown)


@router.post(
    "/{merge}/members" + MODEL,
    operation_id="join_merge",
    summary="Join a merge as a party",
    status_code=201,
    responses=problems(
        *_MERGE_PROBLEMS,
        *BODY_PROBLEMS,
        InvalidParameter,
        Conflict,
        MergeClosed,
        StorageFull,
    ),
)
def join(
    merges: Service[MergeService],
    tenant: WritingTenant,
    name: MergeName,
    model: ModelName,
    body: Annotated[JoinIn, Body()],
    space: WritableSpace,
    session: Writing,
) -> JoinOut:
    """Join as a member that is awaited, or as a neutral party, which aggregates alone.

    The same key may join again with the same token, as after an answer that was lost.
    """
    del tenant
    merges.join(session, space, name, model, body.joining())
    return JoinOut(merge=name, model=model)


@_binary.put(
    _CELL,
    operation_id="put_cell",
    summary="Send a sealed cell to its aggregator",
    status_code=201,
    responses={
        200: {"model": CellOut, "description": "The same cell again"},
        **problems(
            *_MERGE_PROBLEMS,
            *BODY_PROBLEMS,
            Forbidden,
            InvalidCell,
            MergeClosed,
            MergeExists,
            StorageFull,
        ),
    },
    openapi_extra=CELL_BODY,
)
def put_cell(
    mailbox: Service[Mailbox],
    data: CellData,
    name: MergeName,
    address: CellAddress,
    model: ModelName,
    token: MemberToken,
    space: WritableSpace,
    reading: Reading,
    response: Response,
) -> CellOut:
    """Send a member's sealed piece of one shard, as `application/vnd.modelkin.cell`."""
    is_new = mailbox.put_cell(reading, space, name, address, model, token, data)
    response.status_code = 201 if is_new else 200
    attempt = address.attempt or 0
    return CellOut(attempt=attempt, shard=address.shard, piece=address.piece, size=len(data))


@_binary.get(
    _CELL,
    operation_id="get_cell",
    summary="Download a sealed cell as its aggregator",
    response_class=Response,
    responses={
        200: {"content": CELL_CONTENT, "description": "The cell"},
        **problems(*_MERGE_PROBLEMS, Forbidden, MergeClosed),
    },
)
def get_cell(
    mailbox: Service[Mailbox],
    name: MergeName,
    address: CellAddress,
    model: ModelName,
    token: MemberToken,
    space: KnownSpace,
    session: Reading,
) -> Response:
    """A member's cell, for the aggregator of its shard; 404 until it has come."""
    data = mailbox.cell(session, space, name, address, model, token)
    return Response(bytes(data), media_type=wire.CELL)


@_binary.put(
    _RESULT,
    operation_id="put_result",
    summary="Send the sealed result of a piece",
    status_code=201,
    responses={
        200: {"model": CellOut, "description": "The same result again"},
        **problems(
            *_MERGE_PROBLEMS,
            *BODY_PROBLEMS,
            Forbidden,
            InvalidCell,
            MergeClosed,
            MergeExists,
            StorageFull,
        ),
    },
    openapi_extra=CELL_BODY,
)
def put_result(
    mailbox: Service[Mailbox],
    data: CellData,
    name: MergeName,
    address: ResultAddress,
    token: MemberToken,
    space: WritableSpace,
    reading: Reading,
    response: Response,
) -> CellOut:
    """Send an aggregator's sealed result of one piece, which all parties can open."""
    is_new = mailbox.put_result(reading, space, name, address, token, data)
    response.status_code = 201 if is_new else 200
    header = wire.read_cell_header(data)
    return CellOut(attempt=header.attempt, shard=address.shard, piece=address.piece, size=len(data))


@_binary.get(
    _RESULT,
    operation_id="get_result",
    summary="Download the sealed result of a piece",
    response_class=Response,
    responses={
        200: {"content": CELL_CONTENT, "description": "The result"},
        **problems(*_MERGE_PROBLEMS, Forbidden, MergeClosed),
    },
)
def get_result(
    mailbox: Service[Mailbox],
    name: MergeName,
    address: ResultAddress,
    token: MemberToken,
    space: KnownSpace,
    session: Reading,
) -> Response:
    """A result of a merge that is done, for any of its parties; 404 before, and a day after."""
    return Response(
        bytes(mailbox.result(session, space, name, address, token)), media_type=wire.CELL
    )


@router.post(
    "/{merge}/verdicts",
    operation_id="give_verdict",
    summary="Accept or refuse the cells of a merge",
    responses=problems(
        *_MERGE_PROBLEMS,
        *BODY_PROBLEMS,
        InvalidParameter,
        Forbidden,
        MergeClosed,
        StorageFull,
    ),
)
def judge(
    mailbox: Service[Mailbox],
    merges: Service[MergeService],
    tenant: WritingTenant,
    name: MergeName,
    token: MemberToken,
    body: Annotated[VerdictIn, Body()],
    space: WritableSpace,
    session: Writing,
) -> MergeOut:
    """Say as an aggregator that all cells are good, or which are not, or why none combine.

    Results are taken once all aggregators have found all cells good. Members that one of them
    names are left out of a second attempt; there is no third.
    """
    del tenant
    mailbox.judge(session, space, name, body.attempt, token, body.members, body.failed)
    return _shown(merges, session, space, name)


def _shown(merges: MergeService, session: Reading, space: KnownSpace, name: str) -> MergeOut:
    merge, parties = merges.get(session, space, name)
    return MergeOut.of(space, merge, parties, merges.awaited(session, merge, parties))


router.include_router(_binary)
