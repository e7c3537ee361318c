"""Maps, as the stores keep them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["MapRecord"]


@dataclass(frozen=True, slots=True)
class MapRecord:
    """The newest map of a space, without its places.

    Attributes:
        id: that of the job which drew it.
        parameters: of the request, in the form of the API.
        version: of the space that was drawn.
        similarity: ``exact``, ``mixed`` or ``signature``, the kind of the similarities.
        models: how many; ``edges`` join them to ``parts`` without an edge between them.
        seconds: that it took.
    """

    space_id: int
    id: str
    parameters: dict[str, Any]
    version: int
    similarity: str
    models: int
    edges: int
    parts: int
    seconds: float
    created_at: datetime
