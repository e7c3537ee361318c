"""/v1/spaces/{space}/public: whether, and how, other tenants may ask a space of yours."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from app.auth.dependencies import AUTHENTICATED, REFUSALS, AdminTenant, AuthenticatedJsonRoute
from app.errors import PublicSpaceNotFound, StorageFull, WrongKind
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Reading, Writing
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.public.dependencies import OwnedSpace
from app.public.schemas import PublicSettingsIn, PublicSpaceOut
from app.public.service import PublicSpaceService
from app.spaces.dependencies import SPACE_PROBLEMS, KnownSpace

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/public",
    tags=["public spaces"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@router.put(
    "",
    operation_id="publish_space",
    summary="Let other tenants ask a space for neighbours",
    responses=problems(*SPACE_PROBLEMS, *BODY_PROBLEMS, WrongKind, StorageFull),
)
def publish(
    public: Service[PublicSpaceService],
    tenant: AdminTenant,
    space: OwnedSpace,
    body: Annotated[PublicSettingsIn, Body()],
    session: Writing,
) -> PublicSpaceOut:
    """Make the space public, or change how it is: what the body leaves out gets its default.

    Every key with the scope `read`, of whichever tenant, may then ask which of its models are
    nearest to what it sends. It gets names and scores in steps, and nothing else of the space.
    """
    return PublicSpaceOut.of(public.publish(session, tenant, space, body.settings()))


@router.get(
    "",
    operation_id="get_space_publication",
    summary="Show how your space is public",
    responses=problems(*SPACE_PROBLEMS, PublicSpaceNotFound),
)
def show(
    public: Service[PublicSpaceService], space: KnownSpace, session: Reading
) -> PublicSpaceOut:
    """What other tenants may ask of the space; 404 where they may ask nothing."""
    return PublicSpaceOut.of(public.of(session, space))


@router.delete(
    "",
    operation_id="withdraw_space",
    summary="Withdraw a space from other tenants",
    responses=problems(*SPACE_PROBLEMS, StorageFull),
    status_code=204,
)
def withdraw(public: Service[PublicSpaceService], space: OwnedSpace, session: Writing) -> None:
    """No query that comes after this answer is answered. Again, it changes nothing."""
    public.withdraw(session, space)
