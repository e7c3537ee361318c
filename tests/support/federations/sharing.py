"""A federation in memory: parties with keys, and rounds without a transport."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.sharing import (
    Aggregator,
    Combined,
    Member,
    Party,
    Plan,
    Roster,
    Round,
    SentCell,
    assemble,
    new_key,
    public_key,
)

Floats = npt.NDArray[np.float32]
Cells = dict[tuple[int, int, int], dict[int, bytes]]
"""By shard, piece and holder, and then by member."""


def updates(members: int, size: int, scale: float = 0.05) -> list[Floats]:
    """Normal values of their own for each member."""
    drawn = np.random.default_rng(size).normal(0, scale, (members, size))
    return list(drawn.astype(np.float32))


def fedavg(vectors: Iterable[Floats], weights: Iterable[float]) -> npt.NDArray[np.float64]:
    """The weighted mean in float64: the oracle."""
    pairs = list(zip(vectors, weights, strict=True))
    summed = np.zeros(pairs[0][0].size)
    for vector, weight in pairs:
        summed += vector.astype(np.float64) * weight
    return summed / sum(weight for _, weight in pairs)


class Federation:
    """Some members of one roster, with the keys of all of them.

    Args:
        members: n.
        size: M.
        group_secret: of all of them.
        plan: fields of the plan.
    """

    def __init__(
        self, members: int, size: int, *, group_secret: bytes | None = None, **plan: Any
    ) -> None:
        self.keys = [new_key() for _ in range(members)]
        parties = tuple(Party(f"m{at}", public_key(key)) for at, key in enumerate(self.keys))
        self.roster = Roster(Plan(num_parameters=size, **plan), parties)
        self.members = [
            Member(self.roster, at, key, group_secret=group_secret)
            for at, key in enumerate(self.keys)
        ]
        self.aggregators = {
            at: Aggregator(self.roster, at, self.keys[at], group_secret=group_secret)
            for at in self.roster.seats
        }

    def round(
        self, vectors: Mapping[int, Floats], weights: Mapping[int, float], number: int = 1
    ) -> Round:
        """The round of some members, with the R that holds their values."""
        peak = None
        if self.roster.plan.conceal:
            peak = least_power(max(self.members[at].peak(vectors[at]) for at in weights))
        return Round(number, dict(weights), peak=peak)

    def cells(self, vectors: Mapping[int, Floats], current: Round) -> Cells:
        """What all members of a round send."""
        box: Cells = {}
        for at in current.taking_part:
            for cell in self.members[at].cells(vectors[at], current):
                self.post(box, at, cell)
        return box

    @staticmethod
    def post(box: Cells, member: int, cell: SentCell) -> None:
        """Put a cell where its aggregator finds it."""
        box.setdefault((cell.shard, cell.piece, cell.holder), {})[member] = cell.data

    def combine(self, box: Cells, current: Round) -> dict[tuple[int, int, int], Combined]:
        """What all aggregators make of the cells."""
        return {
            (shard, piece, holder): self.aggregators[holder].combine(shard, piece, cells, current)
            for (shard, piece, holder), cells in box.items()
        }

    def average(self, vectors: Mapping[int, Floats], weights: Mapping[int, float]) -> Floats:
        """One round in which nothing goes wrong: the average update."""
        current = self.round(vectors, weights)
        found = self.combine(self.cells(vectors, current), current)
        return self.assembled(found, current)

    def assembled(self, found: Mapping[tuple[int, int, int], Combined], current: Round) -> Floats:
        """The average update of results that all counted."""
        results: dict[int, dict[int, Floats]] = {}
        for (shard, piece, _), combined in found.items():
            assert combined.values is not None, combined
            results.setdefault(shard, {})[piece] = combined.values
        return assemble(self.roster, current, results)
