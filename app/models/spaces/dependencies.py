"""The space of a path, as endpoints take it from a request."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Path

from app.infra.errors import SpaceNotFound, WrongKind
from app.infra.http.openapi import Refuses
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["KindName", "SpaceName"]

_PROBLEMS: Final = (InvalidName, InvalidParameter, SpaceNotFound)
_NAME: Final = Path(alias="space", description="the name of the space")

SpaceName = Annotated[str, _NAME, Refuses(*_PROBLEMS)]
"""The name of the space in a path, for ``SpaceService.get``."""
KindName = Annotated[str, _NAME, Refuses(*_PROBLEMS, WrongKind)]
"""The name of the space in a path, for an operation on spaces of one kind."""
