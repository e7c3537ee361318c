"""/v1/spaces/{space}/public: whether, and how, other tenants may ask a space of yours."""

from __future__ import annotations

from app.infra.errors import PublicSpaceNotFound, StorageFull, WrongKind
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.search.public.schemas import PublicSettingsIn, PublicSpaceOut
from app.search.public.service import PublicSpaceService
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    AdminContext,
    ReadingContext,
)

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/public",
    tags=["public spaces"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.put(
    "",
    operation_id="publish_space",
    summary="Let other tenants ask a space for neighbours",
    refuses=(WrongKind, StorageFull),
)
def publish(
    context: AdminContext,
    spaces: Service[SpaceService],
    public: Service[PublicSpaceService],
    space_name: SpaceName,
    received: JsonBody[PublicSettingsIn],
) -> PublicSpaceOut:
    """Make the space public, or change how it is: what the body leaves out gets its default.

    Every key with the scope `read`, of whichever tenant, may then ask which of its models are
    nearest to what it sends. It gets names and scores in steps, and nothing else of the space.
    """
    body = received.read()
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        return PublicSpaceOut.of(public.publish(session, context.tenant, space, body.settings()))


@routes.get(
    "",
    operation_id="get_space_publication",
    summary="Show how your space is public",
    refuses=(PublicSpaceNotFound,),
)
def show(
    context: ReadingContext,
    spaces: Service[SpaceService],
    public: Service[PublicSpaceService],
    space_name: SpaceName,
) -> PublicSpaceOut:
    """What other tenants may ask of the space; 404 where they may ask nothing."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        return PublicSpaceOut.of(public.of(session, space))


@routes.delete(
    "",
    operation_id="withdraw_space",
    summary="Withdraw a space from other tenants",
    refuses=(StorageFull,),
    status_code=204,
)
def withdraw(
    context: AdminContext,
    spaces: Service[SpaceService],
    public: Service[PublicSpaceService],
    space_name: SpaceName,
) -> None:
    """No query that comes after this answer is answered. Again, it changes nothing."""
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        public.withdraw(session, space)
