"""/v1/public: the public spaces of all tenants, and their models nearest to what a caller sends."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingTenant
from app.catalog.dependencies import Stated
from app.catalog.endpoints.payloads import EITHER_BODY, EitherPayload
from app.errors import QueryBudgetSpent, StorageFull, TooMuch
from app.infra.db.visibility import every_tenant
from app.infra.http.answers import PageLimit, page_answer
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Cursor, Reading, Turn
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.infra.http.turns import counts_as
from app.public.budgets import QueryBudgets
from app.public.dependencies import PUBLIC_PROBLEMS, AnyPublicSpace, PublicK
from app.public.schemas import (
    PublicNeighborsOut,
    PublicSpaceDetails,
    PublicSpaceOut,
    PublicSpacePage,
)
from app.public.search import PublicSearch
from app.public.service import PublicSpaceService
from modelkin.errors import InvalidParameter, InvalidSignature, InvalidSupport, SpaceMismatch

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/public",
    tags=["public spaces"],
    route_class=ThreadRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@router.get(
    "",
    operation_id="list_public_spaces",
    summary="List the public spaces of all tenants",
    responses=problems(InvalidParameter),
    response_model=PublicSpacePage,
)
def list_public(
    public: Service[PublicSpaceService],
    limit: PageLimit,
    tenant: ReadingTenant,
    session: Reading,
    cursor: Cursor = None,
) -> Response:
    """The public spaces by the names of their owners and their own, those of your tenant too."""
    del tenant
    with every_tenant():
        page = public.list(session, limit=limit, cursor=cursor)
    return page_answer(map(PublicSpaceOut.of, page.items), page.next_cursor)


@router.get(
    "/{owner}/{space}",
    operation_id="get_public_space",
    summary="Show what a public space answers",
    responses=problems(*PUBLIC_PROBLEMS),
)
def show(
    public: Service[PublicSpaceService],
    budgets: Service[QueryBudgets],
    asked: AnyPublicSpace,
    caller: ReadingTenant,
    session: Reading,
) -> PublicSpaceDetails:
    """One public space, with what supports and signatures for it are made with."""
    space = public.space(session, asked)
    session.release()
    return PublicSpaceDetails.with_space(asked, space, budgets.left(asked, caller))


@router.post(
    "/{owner}/{space}/neighbors",
    operation_id="find_public_neighbors",
    summary="Find the nearest models of a public space",
    responses=problems(
        *PUBLIC_PROBLEMS,
        *BODY_PROBLEMS,
        InvalidSupport,
        InvalidSignature,
        SpaceMismatch,
        QueryBudgetSpent,
        StorageFull,
        TooMuch,
    ),
    response_model=PublicNeighborsOut,
    openapi_extra=EITHER_BODY,
)
@counts_as("heavy")
def neighbors(
    public: Service[PublicSpaceService],
    search: Service[PublicSearch],
    payload: EitherPayload,
    origin: Stated,
    asked: AnyPublicSpace,
    caller: ReadingTenant,
    session: Reading,
    turn: Turn,
    k: PublicK = 10,
) -> Response:
    """The models of the largest scores, for the support or signature in the body.

    What is sent is not stored. Each query takes one from the budget of your tenant; beyond it the
    answer is a 429 `query_budget_spent` until midnight UTC. What is refused takes nothing. A query
    that was counted stays counted if its answer fails, is a 503 `too_much`, or is lost on the way.
    """
    space = public.space(session, asked)
    found = search.neighbors(
        session,
        asked,
        space,
        payload.either(space.num_parameters),
        caller=caller,
        k=k,
        origin=origin,
        deadline=turn,
    )
    session.rollback()
    answer = PublicNeighborsOut.of(found)
    return Response(answer.model_dump_json(), media_type="application/json")
