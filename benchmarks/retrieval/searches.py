"""Results of retrieval queries: times, answers, and the cost of filling the indexes.

The module ``verdicts`` judges them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Race
from benchmarks.retrieval.planted_models import Background

__all__ = [
    "BYTES",
    "EXACT",
    "READ",
    "SKETCHES",
    "STRATA",
    "VALUES",
    "Filled",
    "Searched",
]

STRATA = (0, 3, 6, 9)
"""Positions of the kin whose recall is shown, in the order of S."""

READ = "one read of the bytes that are scanned"
BYTES = "modelkin, bytes alone"
VALUES = "modelkin, signatures alone"
SKETCHES = "modelkin, signatures and sketches"
EXACT = "modelkin, all: 40 exact overlaps at M = 1.1e7 too"


@dataclass(frozen=True, slots=True)
class Filled:
    """The cost of storing all models."""

    seconds: float
    memory: float | None

    def cells(self, n: int) -> list[str]:
        """Models a second and bytes a model, for a table."""
        a_model = "" if self.memory is None else f"{self.memory / n:,.0f}"
        return [f"{n / self.seconds:,.0f}", a_model]


@dataclass(frozen=True, slots=True)
class Searched:
    """The results of all queries, by every contender.

    Attributes:
        race: the seconds of every query, by contender.
        found: by contender, the kin found, bool, shape ``(queries, NEAR)``.
        filled: the cost of filling, by contender.
    """

    n: int
    background: Background
    race: Race
    found: dict[str, npt.NDArray[np.bool_]]
    filled: dict[str, Filled]

    def recall(self, name: str) -> float:
        """Recall of the kin of all strata."""
        return float(self.found[name].mean())

    def strata(self, name: str) -> list[str]:
        """Recall by the similarity of the kin."""
        return [f"{share:.2f}" for share in self.found[name].mean(axis=0)[list(STRATA)]]

    def percentile(self, name: str, share: float) -> float:
        """Seconds within which that share of the queries was answered."""
        return float(np.quantile(self.race.samples[name], share))
