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
        id: the id of the job that drew it.
        parameters: the parameters of the request, in the form of the API.
        version: the version of the space that was drawn.
        similarity: the source of the similarities: ``exact``, ``mixed`` or ``signature``.
        models: the number of models; ``edges`` join them to ``parts`` without an edge between them.
        seconds: the seconds that it took.
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
