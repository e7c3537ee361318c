"""Records of public spaces, and what their owners may choose."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from modelkin.types.public import PublicNeighbor

__all__ = ["MAX_DAILY_QUERIES", "MAX_K", "STEPS", "Nearest", "PublicSettings", "PublicSpace"]

STEPS: Final = {0.01: 100, 0.02: 50, 0.05: 20, 0.1: 10, 0.2: 5, 0.25: 4}
"""The steps that scores may have, and how many of each make 1."""
MAX_DAILY_QUERIES: Final = 1_000_000
MAX_K: Final = 100
"""Neighbours that one query may ask for."""


@dataclass(frozen=True, slots=True)
class PublicSettings:
    """What the owner of a public space chooses.

    Attributes:
        step: of the scores; one of :data:`STEPS`.
        floor: the least score that is shown, from one step to 1.
        daily_queries: of each tenant, in a day of UTC.
        description: for people.
    """

    step: float
    floor: float
    daily_queries: int
    description: str


@dataclass(frozen=True, slots=True)
class PublicSpace:
    """A space that every tenant may ask for neighbours.

    Attributes:
        space_id: of the space.
        owner_id: of the tenant that owns it.
        owner: the name of that tenant.
        space: the name of the space.
        created_at: when it became public.
    """

    space_id: int
    owner_id: int
    owner: str
    space: str
    settings: PublicSettings
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Nearest:
    """What a query of a public space finds.

    Attributes:
        items: the largest score first, ties by name.
        remaining: queries that the tenant has left today.
        truncated: models are left out that may have scores as large.
        degraded: as :class:`modelkin.types.search.Neighbors` says.
    """

    items: tuple[PublicNeighbor, ...]
    remaining: int
    truncated: bool
    degraded: bool
