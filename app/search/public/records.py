"""Records of public spaces, and the choices of their owners."""

from __future__ import annotations

import math
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
    """The settings that the owner of a public space chooses.

    Attributes:
        step: the step of the scores; one of :data:`STEPS`.
        floor: the least score that is shown, more than one step and 1 at most.
        daily_queries: the queries of each tenant in a day of UTC.
        description: a text for people.
    """

    step: float
    floor: float
    daily_queries: int
    description: str

    @property
    def least_steps(self) -> int:
        """The least score that is shown, in steps. Noise alone makes 1, and never 2."""
        return math.ceil(self.floor * STEPS[self.step] - 1e-9)


@dataclass(frozen=True, slots=True)
class PublicSpace:
    """A space that every tenant may ask for neighbours.

    Attributes:
        owner_id: the id of the tenant that owns it.
        owner: the name of that tenant.
        created_at: the time when it became public.
    """

    space_id: int
    owner_id: int
    owner: str
    space: str
    settings: PublicSettings
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Nearest:
    """The result of a query of a public space.

    Attributes:
        public: the space, as it was public when the query was counted.
        items: the models, the largest score first, ties by name.
        remaining: queries that the tenant has left today.
        truncated: whether models from the floor on are left out.
        degraded: see :class:`modelkin.types.search.Neighbors`.
    """

    public: PublicSpace
    items: tuple[PublicNeighbor, ...]
    remaining: int
    truncated: bool
    degraded: bool
