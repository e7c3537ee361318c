"""/v1/public: the public spaces of all tenants, and their models nearest to what a caller sends."""

from __future__ import annotations

from fastapi import Response

from app.infra.db.visibility import every_tenant
from app.infra.errors import QueryBudgetSpent, StorageFull, TooMuch, Unavailable
from app.infra.http.answers import PageLimit, json_answer, page_answer
from app.infra.http.dependencies import Cursor
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.models.catalog.dependencies import Stated
from app.models.catalog.endpoints.payloads import EITHER_BODY, EitherPayload
from app.search.public.budgets import QueryBudgets
from app.search.public.dependencies import OwnerName, PublicK, PublicName
from app.search.public.schemas import (
    PublicNeighborsOut,
    PublicSpaceDetails,
    PublicSpaceOut,
    PublicSpacePage,
)
from app.search.public.search import PublicSearch
from app.search.public.service import PublicSpaceService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext
from modelkin.errors import InvalidParameter

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/public",
    tags=["public spaces"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.get(
    "",
    operation_id="list_public_spaces",
    summary="List the public spaces of all tenants",
    refuses=(InvalidParameter,),
    response_model=PublicSpacePage,
)
def list_public(
    context: ReadingContext,
    public: Service[PublicSpaceService],
    limit: PageLimit,
    cursor: Cursor = None,
) -> Response:
    """The public spaces by the names of their owners and their own, those of your tenant too."""
    with every_tenant(), context.reading() as session:
        page = public.list(session, limit=limit, cursor=cursor)
    return page_answer(map(PublicSpaceOut.of, page.items), page.next_cursor)


@routes.get(
    "/{owner}/{space}",
    operation_id="get_public_space",
    summary="Show what a public space answers",
)
def show(
    context: ReadingContext,
    public: Service[PublicSpaceService],
    budgets: Service[QueryBudgets],
    owner: OwnerName,
    space_name: PublicName,
) -> PublicSpaceDetails:
    """One public space, with what supports and signatures for it are made with."""
    asked = public.open(owner, space_name)
    with context.reading() as session:
        space = public.space(session, asked)
    return PublicSpaceDetails.with_space(asked, space, budgets.left(asked, context.tenant))


@routes.post(
    "/{owner}/{space}/neighbors",
    operation_id="find_public_neighbors",
    summary="Find the nearest models of a public space",
    refuses=(QueryBudgetSpent, StorageFull, TooMuch, Unavailable),
    response_model=PublicNeighborsOut,
    openapi_extra=EITHER_BODY,
    turn="heavy",
)
def neighbors(
    context: ReadingContext,
    public: Service[PublicSpaceService],
    search: Service[PublicSearch],
    payload: EitherPayload,
    origin: Stated,
    owner: OwnerName,
    space_name: PublicName,
    k: PublicK = 10,
) -> Response:
    """The models of the largest scores, for the support or signature in the body.

    What is sent is not stored. Each query takes one from the budget of your tenant; beyond it the
    answer is a 429 `query_budget_spent` until midnight UTC. What is refused takes nothing. A query
    that was counted stays counted if its answer fails, is a 503 `too_much`, or is lost on the way.
    """
    asked = public.open(owner, space_name)
    with context.reading() as session:
        space = public.space(session, asked)
        found = search.neighbors(
            session,
            asked,
            space,
            payload.either(space.num_parameters),
            caller=context.tenant,
            k=k,
            origin=origin,
            deadline=context.deadline,
        )
    return json_answer(PublicNeighborsOut.of(found))
