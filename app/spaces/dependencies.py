"""The space of a path, as endpoints take it from a request."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Path

from app.auth.dependencies import ReadingTenant, WritingTenant
from app.errors import SpaceNotFound, WrongKind
from app.infra.http.dependencies import Reading
from app.infra.http.endpoint_threads import in_endpoint_thread
from app.infra.http.services import Service
from app.spaces.records import SpaceRecord
from app.spaces.service import SpaceService
from modelkin._validation import check_space_name
from modelkin.errors import InvalidName, InvalidParameter

__all__ = [
    "SPACE_PROBLEMS",
    "SUPPORT_SPACE_PROBLEMS",
    "KnownSpace",
    "SubspaceSpace",
    "SupportSpace",
    "WritableSpace",
    "WritableSubspaceSpace",
    "WritableSupportSpace",
]


SPACE_PROBLEMS: Final = (InvalidName, InvalidParameter, SpaceNotFound)
"""What every operation in a space may refuse."""
SUPPORT_SPACE_PROBLEMS: Final = (*SPACE_PROBLEMS, WrongKind)
"""What operations may refuse that are for spaces of one kind."""

SpaceName = Annotated[str, Path(description="the name of the space")]


@in_endpoint_thread
def _space(
    spaces: Service[SpaceService], tenant: ReadingTenant, session: Reading, space: SpaceName
) -> SpaceRecord:
    return spaces.get(session, tenant, check_space_name(space))


@in_endpoint_thread
def _writable_space(
    spaces: Service[SpaceService], tenant: WritingTenant, session: Reading, space: SpaceName
) -> SpaceRecord:
    return spaces.get(session, tenant, check_space_name(space))


KnownSpace = Annotated[SpaceRecord, Depends(_space)]
"""The space of the path, to a key that may read."""


WritableSpace = Annotated[SpaceRecord, Depends(_writable_space)]
"""The space of the path, to a key that may write."""


@in_endpoint_thread
def _support_space(space: KnownSpace) -> SpaceRecord:
    return _of_supports(space)


@in_endpoint_thread
def _writable_support_space(space: WritableSpace) -> SpaceRecord:
    return _of_supports(space)


@in_endpoint_thread
def _subspace_space(space: KnownSpace) -> SpaceRecord:
    return _of_subspaces(space)


@in_endpoint_thread
def _writable_subspace_space(space: WritableSpace) -> SpaceRecord:
    return _of_subspaces(space)


def _of_supports(space: SpaceRecord) -> SpaceRecord:
    if space.kind != "supports":
        raise WrongKind(
            f"space {space.name!r} holds data subspaces, and this is for supports: models are "
            f"written and read at /v1/spaces/{space.name}/subspaces/..., and compared by "
            f"neighbors, similarity, overlap, graph, donors and clusterings"
        )
    return space


def _of_subspaces(space: SpaceRecord) -> SpaceRecord:
    if space.kind != "subspaces":
        raise WrongKind(
            f"space {space.name!r} holds supports, and this is for data subspaces: write models to "
            f"/v1/spaces/{space.name}/supports/..., or create a space of kind subspaces"
        )
    return space


SupportSpace = Annotated[SpaceRecord, Depends(_support_space)]
"""The space of the path, which holds supports, to a key that may read."""
WritableSupportSpace = Annotated[SpaceRecord, Depends(_writable_support_space)]
"""The space of the path, which holds supports, to a key that may write."""
SubspaceSpace = Annotated[SpaceRecord, Depends(_subspace_space)]
"""The space of the path, which holds data subspaces, to a key that may read."""
WritableSubspaceSpace = Annotated[SpaceRecord, Depends(_writable_subspace_space)]
"""The space of the path, which holds data subspaces, to a key that may write."""
