"""The k nearest neighbours of every model, from which a kinship graph is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels
from modelkin.core.kernels.reference.pairs import LAST_ROW, ROW_BITS
from modelkin.core.similarity.distances import Distances, SignatureDistances, blocks

__all__ = ["Nearest", "nearest"]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Report = Callable[[int, int], None]
Stop = Callable[[], bool]

_PAIRS_A_STEP = 1 << 25
"""Pairs of signatures that are compared between two reports: some tenths of a second."""
_ROWS_A_STEP = 2048
"""The most rows that are compared between two reports."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The k nearest others of each of n models, in no promised order.

    Attributes:
        rows: the rows of the neighbours, int64, shape ``(n, k)``.
        distances: the distances to the neighbours, float64, shape ``(n, k)``.
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
        distances: 1 - S of all pairs of n models.
        k: 1 to n - 1.
        report: called with the number of models that are done, and with n.
        stop: asked between blocks of models; once it is true, the answer has the first models
            alone, shape ``(m, k)``.
    """
    if isinstance(distances, SignatureDistances):
        return _nearest_signatures(distances, k, report, stop)
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


def _nearest_signatures(
    distances: SignatureDistances, k: int, report: Report | None, stop: Stop | None
) -> Nearest:
    """Find the nearest by signatures: each pair once, most by their lowest bytes alone."""
    values = distances.values
    n, h = values.shape
    low = np.zeros((n, -(-h // 8) * 8), np.uint8)
    low[:, :h] = values.astype(np.uint8)
    keys = np.full((n, k), -1, np.int64)
    step, done = max(1, min(_ROWS_A_STEP, _PAIRS_A_STEP // n)), 0
    while done < n and not (stop is not None and stop()):
        end = min(n, done + step)
        kernels().keep_nearest(values, low.view(np.uint64), done, end, keys)
        done = end
        if report is not None:
            report(done, n)
    keys = keys[:done]
    rows = LAST_ROW - (keys & LAST_ROW)
    order = np.argsort(rows, axis=1)
    matches = np.take_along_axis(keys >> ROW_BITS, order, axis=1)
    return Nearest(np.take_along_axis(rows, order, axis=1), distances.of_matches[matches])
