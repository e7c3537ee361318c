"""The space of a path, as endpoints take it from a request."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Path

from app.auth.dependencies import ReadingTenant, WritingTenant
from app.errors import SpaceNotFound
from app.infra.http.dependencies import Reading
from app.infra.http.endpoint_threads import in_endpoint_thread
from app.infra.http.services import Service
from app.spaces.records import SpaceRecord
from app.spaces.service import SpaceService
from modelkin._validation import check_space_name
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["SPACE_PROBLEMS", "KnownSpace", "WritableSpace"]


SPACE_PROBLEMS: Final = (InvalidName, InvalidParameter, SpaceNotFound)
"""What every operation in a space may refuse."""

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
