"""/v1/spaces/{space}/merges: averages of models through a mailbox that cannot read them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Header, Response

from app.infra.db.database import Reader
from app.infra.errors import (
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
)
from app.infra.http.answers import Answer, PageLimit, page_answer
from app.infra.http.dependencies import Cursor
from app.infra.http.event_stream import EVENTS, EventStream, known_revision
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
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
from app.models.catalog.dependencies import ModelName
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    ReadingContext,
    WritingContext,
    require_scopes,
)
from modelkin import wire

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/merges",
    tags=["merges"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

_CELL = "/{merge}/cells/{attempt}/{shard}/{piece}" + MODEL
_RESULT = "/{merge}/results/{shard}/{piece}"


@routes.put(
    "/{merge}",
    operation_id="create_merge",
    summary="Create a merge of models",
    status_code=201,
    refuses=(ModelNotFound, ClusteringNotFound, MergeExists, QuotaExceeded),
    responses={200: {"model": MergeOut, "description": "The same request has created it before"}},
    turn="heavy",
)
def create(
    context: WritingContext,
    spaces: Service[SpaceService],
    merges: Service[MergeService],
    name: MergeName,
    received: JsonBody[MergeIn],
    space_name: SpaceName,
) -> Answer[MergeOut]:
    """Create a merge, whose members and weights are settled now.

    Then each member joins it. The service gets sealed cells alone, and cannot open them.
    Where the service finds the members, which it then names, the key has the scope `read`, too.
    """
    body = received.read()
    if body.donors_of is not None or body.clustering is not None:
        require_scopes(context.identity, ["read"])
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        merge, is_new = merges.put(
            session, context.tenant, space, name, body.to_request(), context.deadline
        )
        return Answer(_merge_out(merges, session, space, merge.name), status=201 if is_new else 200)


@routes.get(
    "",
    operation_id="list_merges",
    summary="List the merges of a space",
    response_model=MergePage,
)
def list_merges(
    context: ReadingContext,
    spaces: Service[SpaceService],
    merges: Service[MergeService],
    space_name: SpaceName,
    limit: PageLimit,
    cursor: Cursor = None,
) -> Response:
    """The merges of the space, newest first, without their parties."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        page = merges.list(session, space, limit=limit, cursor=cursor)
        items = (MergeSummary.summary(space, merge) for merge in page.items)
    return page_answer(items, page.next_cursor)


@routes.get(
    "/{merge}",
    operation_id="get_merge",
    summary="Show the state of a merge",
    refuses=(MergeNotFound,),
)
def show(
    context: ReadingContext,
    spaces: Service[SpaceService],
    merges: Service[MergeService],
    name: MergeName,
    space_name: SpaceName,
) -> MergeOut:
    """One merge: its state, who is awaited, and the roster once joining has ended."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        return _merge_out(merges, session, space, name)


@routes.delete(
    "/{merge}",
    operation_id="delete_merge",
    summary="Delete a merge with all it holds",
    refuses=(MergeNotFound,),
    status_code=204,
)
def delete(
    context: WritingContext,
    spaces: Service[SpaceService],
    merges: Service[MergeService],
    name: MergeName,
    space_name: SpaceName,
) -> None:
    """Delete a merge with all cells and results, whatever its state."""
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        merges.delete(session, space, name)


@routes.get(
    "/{merge}/events",
    operation_id="follow_merge",
    summary="Follow a merge to its end",
    response_class=Response,
    refuses=(MergeNotFound, QueueFull, RateLimited),
    responses={
        200: {
            "content": {EVENTS: {"schema": {"type": "string"}}},
            "description": "Server-sent events, whose `data` is the merge without its parties and "
            "whose `id` its revision: one at once, and one after each change",
        },
        204: {"description": "The merge has ended, and the client knows its last revision"},
    },
)
def follow(
    context: ReadingContext,
    spaces: Service[SpaceService],
    merges: Service[MergeService],
    watcher: Service[MergeWatcher],
    name: MergeName,
    space_name: SpaceName,
    last: Annotated[
        str | None, Header(alias="Last-Event-ID", description="the `id` of the last event received")
    ] = None,
) -> Response:
    """Follow a merge to its end, as server-sent events."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        merge, _ = merges.get(session, space, name)
    known = known_revision(last)
    if merge.finished and known == merge.revision:
        return Response(status_code=204)
    shown = partial(MergeSummary.summary, space)
    return EventStream(partial(watcher.open, merge, context.identity), watcher, known, shown)


@routes.post(
    "/{merge}/members" + MODEL,
    operation_id="join_merge",
    summary="Join a merge as a party",
    status_code=201,
    refuses=(MergeNotFound, Conflict, MergeClosed),
)
def join(
    context: WritingContext,
    spaces: Service[SpaceService],
    merges: Service[MergeService],
    name: MergeName,
    model: ModelName,
    received: JsonBody[JoinIn],
    space_name: SpaceName,
) -> JoinOut:
    """Join as a member that is awaited, or as a neutral party, which aggregates alone.

    The same key may join again with the same token, as after an answer that was lost.
    """
    body = received.read()
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        merges.join(session, space, name, model, body.joining())
    return JoinOut(merge=name, model=model)


@routes.post(
    "/{merge}/verdicts",
    operation_id="give_verdict",
    summary="Accept or refuse the cells of a merge",
    refuses=(MergeNotFound, Forbidden, MergeClosed),
)
def judge(
    context: WritingContext,
    spaces: Service[SpaceService],
    mailbox: Service[Mailbox],
    merges: Service[MergeService],
    name: MergeName,
    token: MemberToken,
    received: JsonBody[VerdictIn],
    space_name: SpaceName,
) -> MergeOut:
    """Say as an aggregator that all cells are good, or which are not, or why none combine.

    Results are taken once all aggregators have found all cells good. Members that one of them
    names are left out of a second attempt; there is no third.
    """
    body = received.read()
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        mailbox.judge(session, space, name, body.attempt, token, body.members, body.failed)
        return _merge_out(merges, session, space, name)


@routes.put(
    _CELL,
    operation_id="put_cell",
    summary="Send a sealed cell to its aggregator",
    status_code=201,
    refuses=(MergeNotFound, Forbidden, MergeClosed, MergeExists),
    responses={200: {"model": CellOut, "description": "The same cell again"}},
    openapi_extra=CELL_BODY,
)
def put_cell(
    context: WritingContext,
    spaces: Service[SpaceService],
    mailbox: Service[Mailbox],
    data: CellData,
    name: MergeName,
    address: CellAddress,
    model: ModelName,
    token: MemberToken,
    space_name: SpaceName,
) -> Answer[CellOut]:
    """Send a member's sealed piece of one shard, as `application/vnd.modelkin.cell`."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        is_new = mailbox.put_cell(session, space, name, address, model, token, data)
        attempt = address.attempt or 0
    return Answer(
        CellOut(attempt=attempt, shard=address.shard, piece=address.piece, size=len(data)),
        status=201 if is_new else 200,
    )


@routes.get(
    _CELL,
    operation_id="get_cell",
    summary="Download a sealed cell as its aggregator",
    response_class=Response,
    refuses=(MergeNotFound, Forbidden, MergeClosed),
    responses={200: {"content": CELL_CONTENT, "description": "The cell"}},
)
def get_cell(
    context: ReadingContext,
    spaces: Service[SpaceService],
    mailbox: Service[Mailbox],
    name: MergeName,
    address: CellAddress,
    model: ModelName,
    token: MemberToken,
    space_name: SpaceName,
) -> Response:
    """A member's cell, for the aggregator of its shard; 404 until it has come."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        data = mailbox.cell(session, space, name, address, model, token)
    return Response(bytes(data), media_type=wire.CELL)


@routes.put(
    _RESULT,
    operation_id="put_result",
    summary="Send the sealed result of a piece",
    status_code=201,
    refuses=(MergeNotFound, Forbidden, MergeClosed, MergeExists),
    responses={200: {"model": CellOut, "description": "The same result again"}},
    openapi_extra=CELL_BODY,
)
def put_result(
    context: WritingContext,
    spaces: Service[SpaceService],
    mailbox: Service[Mailbox],
    data: CellData,
    name: MergeName,
    address: ResultAddress,
    token: MemberToken,
    space_name: SpaceName,
) -> Answer[CellOut]:
    """Send an aggregator's sealed result of one piece, which all parties can open."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        is_new = mailbox.put_result(session, space, name, address, token, data)
        header = wire.read_cell_header(data)
    return Answer(
        CellOut(attempt=header.attempt, shard=address.shard, piece=address.piece, size=len(data)),
        status=201 if is_new else 200,
    )


@routes.get(
    _RESULT,
    operation_id="get_result",
    summary="Download the sealed result of a piece",
    response_class=Response,
    refuses=(MergeNotFound, Forbidden, MergeClosed),
    responses={200: {"content": CELL_CONTENT, "description": "The result"}},
)
def get_result(
    context: ReadingContext,
    spaces: Service[SpaceService],
    mailbox: Service[Mailbox],
    name: MergeName,
    address: ResultAddress,
    token: MemberToken,
    space_name: SpaceName,
) -> Response:
    """A result of a merge that is done, for any of its parties; 404 before, and a day after."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        return Response(
            bytes(mailbox.result(session, space, name, address, token)), media_type=wire.CELL
        )


def _merge_out(merges: MergeService, session: Reader, space: SpaceRecord, name: str) -> MergeOut:
    merge, parties = merges.get(session, space, name)
    return MergeOut.of(space, merge, parties, merges.awaited_parties(session, merge, parties))
