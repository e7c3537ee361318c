"""Public spaces as endpoints take them from a request."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Path, Query

from app.infra.errors import PublicSpaceNotFound
from app.infra.http.openapi import Refuses
from app.search.public.records import MAX_K
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["OwnerName", "PublicK", "PublicName"]

_PROBLEMS: Final = (InvalidName, InvalidParameter, PublicSpaceNotFound)

OwnerName = Annotated[str, Path(alias="owner", description="the tenant that the space belongs to")]
PublicName = Annotated[
    str, Path(alias="space", description="the name of the space"), Refuses(*_PROBLEMS)
]
"""The name of a public space, for ``PublicSpaceService.open``."""
PublicK = Annotated[int, Query(ge=1, le=MAX_K, description="how many")]
