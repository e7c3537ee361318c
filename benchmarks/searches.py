"""What came of the queries of a retrieval: times, answers, and what it took to fill the indexes.

It judges nothing: that is ``verdicts``'.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Race
from benchmarks.kin import Background

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
"""Whose recall is shown, of the kin of a query in the order of S."""

READ = "one read of the bytes that are scanned"
BYTES = "modelkin, bytes alone"
VALUES = "modelkin, signatures alone"
SKETCHES = "modelkin, signatures and sketches"
EXACT = "modelkin, all: 40 exact overlaps at M = 1.1e7 too"


@dataclass(frozen=True, slots=True)
class Filled:
    """What it took to take all models in."""

    seconds: float
    memory: float | None

    def cells(self, n: int) -> list[str]:
        """Models a second, and bytes a model."""
        a_model = "" if self.memory is None else f"{self.memory / n:,.0f}"
        return [f"{n / self.seconds:,.0f}", a_model]


@dataclass(frozen=True, slots=True)
class Searched:
    """What came of all queries in all ways.

    Attributes:
        race: what every query took in every way.
        found: of each way that answers: which kin it found, bool, shape ``(queries, NEAR)``.
        filled: what it took before.
    """

    n: int
    background: Background
    race: Race
    found: dict[str, npt.NDArray[np.bool_]]
    filled: dict[str, Filled]

    def recall(self, name: str) -> float:
        """Of the kin of all strata."""
        return float(self.found[name].mean())

    def strata(self, name: str) -> list[str]:
        """Recall by how similar the kin is."""
        return [f"{share:.2f}" for share in self.found[name].mean(axis=0)[list(STRATA)]]

    def percentile(self, name: str, share: float) -> float:
        """Seconds within which that share of the queries was answered."""
        return float(np.quantile(self.race.samples[name], share))
