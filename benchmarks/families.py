"""Families of models in a service's store: heads, and members that keep a part of their head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from app.container import Container
from app.models.catalog.batches import BatchEntry
from app.models.spaces.records import SpaceRecord
from benchmarks.stored_space import stored
from modelkin import Layout, Support

__all__ = ["DENSITY", "M", "filled_space", "layout_of"]

M = 100_000
DENSITY = 0.1
FAMILY = 20
"""Models in a family."""


@contextmanager
def filled_space(n: int, layout: Layout | None = None) -> Iterator[tuple[Container, SpaceRecord]]:
    """The services of a SQLite store, and a space of n models, each labelled by its family.

    Args:
        n: models, named ``m00000`` and so on.
        layout: of the space; of M parameters.
    """
    with stored(_entries(n), M, layout) as filled:
        yield filled


def layout_of(tensors: int) -> Layout:
    """Tensors of one size, and what is left of M parameters."""
    size = M // tensors
    equal = [(f"t{i}", [size]) for i in range(tensors - 1)]
    return Layout.of([*equal, ("rest", [M - size * (tensors - 1)])])


def _entries(n: int) -> Iterator[BatchEntry]:
    """Members keep 30 to 90% of their head."""
    rng = np.random.default_rng(0)
    head = np.zeros(M, np.bool_)
    for number in range(n):
        if number % FAMILY == 0:
            head = rng.random(M, dtype=np.float32) < DENSITY
        share = 1.0 if number % FAMILY == 0 else rng.uniform(0.3, 0.9)
        drawn = rng.random(M, dtype=np.float32)
        held = np.where(head, drawn < share, drawn < DENSITY * (1 - share))
        label = {"family": f"f{number // FAMILY}"}
        support = Support.from_indices(np.flatnonzero(held), M)
        yield BatchEntry(f"m{number:05d}", support, attributes=label)
