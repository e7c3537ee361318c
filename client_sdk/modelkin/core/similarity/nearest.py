"""The k nearest neighbours of every model, from which a kinship graph is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.similarity.distances import Distances, blocks

__all__ = ["Nearest", "nearest"]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Report = Callable[[int, int], None]
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Nearest:
    """The k nearest others of each of n models, in no promised order.

    Attributes:
        rows: of the neighbours, int64, shape ``(n, k)``.
        distances: to the neighbours, float64, shape ``(n, k)``.
    """

    rows: Rows
    distances: Floats

    def best(self, k: int) -> Nearest:
        """The k nearest among these, nearest first, ties by row."""
        order = np.lexsort((self.rows, self.distances), axis=1)[:, :k]
        return Nearest(
            np.take_along_axis(self.rows, order, axis=1),
            np.take_along_axis(self.distances, order, axis=1),
        )


def nearest(
    distances: Distances, k: int, report: Report | None = None, stop: Stop | None = None
) -> Nearest:
    """The k nearest others of each model; of equally near ones those of the lower rows.

    Args:
        distances: of n models.
        k: 1 to n - 1.
        report: called with the number of models that are done, and with n.
        stop: asked between blocks of models; once it is true, the answer has the first models
            alone, shape ``(m, k)``.
    """
    n, done = len(distances), 0
    found, far = np.empty((n, k), np.int64), np.empty((n, k))
    for some, block in blocks(distances, np.arange(n), stop):
        block[np.arange(some.size), some] = np.inf
        last = np.partition(block, k - 1, axis=1)[:, k - 1]
        for row, others, farthest in zip(some, block, last, strict=True):
            nearer = np.flatnonzero(others < farthest)
            ties = np.flatnonzero(others == farthest)[: k - nearer.size]
            found[row] = np.sort(np.concatenate([nearer, ties]))
            far[row] = others[found[row]]
        done = int(some[-1]) + 1
        if report is not None:
            report(done, n)
    return Nearest(found[:done], far[:done])
