"""Spaces as the endpoints of public spaces take them from a request."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Path, Query

from app.auth.dependencies import AdminTenant, ReadingTenant
from app.errors import PublicSpaceNotFound
from app.infra.db.visibility import show_tenant
from app.infra.http.dependencies import Turn, Writing
from app.infra.http.endpoint_threads import in_endpoint_thread
from app.infra.http.services import Service
from app.public.records import MAX_K, PublicSpace
from app.public.service import PublicSpaceService
from app.spaces.records import SpaceRecord
from app.spaces.service import SpaceService
from modelkin._validation import check_space_name
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["PUBLIC_PROBLEMS", "AnyPublicSpace", "OwnedSpace", "PublicK"]

PUBLIC_PROBLEMS: Final = (InvalidName, InvalidParameter, PublicSpaceNotFound)
"""What operations on a public space may refuse."""


@in_endpoint_thread
def _owned_space(
    spaces: Service[SpaceService],
    tenant: AdminTenant,
    session: Writing,
    space: Annotated[str, Path(description="the name of the space")],
) -> SpaceRecord:
    return spaces.get(session, tenant, check_space_name(space))


OwnedSpace = Annotated[SpaceRecord, Depends(_owned_space)]
"""The space of the path, of the caller's tenant, to a key with the scope ``admin``."""


@in_endpoint_thread
def _public_space(
    public: Service[PublicSpaceService],
    tenant: ReadingTenant,
    turn: Turn,
    owner: Annotated[str, Path(description="the tenant that the space belongs to")],
    space: Annotated[str, Path(description="the name of the space")],
) -> PublicSpace:
    """The one place where a request reaches a space of another tenant.

    What is read after this, but for the caller's budget, are rows of the owner.
    """
    del tenant, turn
    found = public.find(check_space_name(owner, field="owner"), check_space_name(space))
    show_tenant(found.owner_id)
    return found


AnyPublicSpace = Annotated[PublicSpace, Depends(_public_space)]
"""The public space of the path, of whichever tenant, to a key that may read."""
PublicK = Annotated[int, Query(ge=1, le=MAX_K, description="how many")]
