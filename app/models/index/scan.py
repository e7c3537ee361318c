"""The scan of an index: the number of bytes of each signature that equal the query's.

Among millions of models, the bytes of the first half of all values are read first. They show which
models may be among the nearest, and the other half is read for these models alone. Any half of the
values would do: two supports are equally likely to agree in each value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from app.models.index.columns import ByteColumns
from app.models.index.parts import in_parts
from modelkin.core.kernels.choice import kernels

__all__ = ["Scan", "ScanCandidates", "least_in_first", "scan_nearest"]

Rows = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int16]

MISSED = 1e-4
"""The probability that the first half hides a model that the scan has to find, at most."""
_PILOT, _SAMPLE, _MOST = 64, 1 << 16, 6
"""The best 64th of the rows, by a sample of 65,536, is read whole in any case; at most a sixth."""
_CHANCE_MATCHES = 2
"""Bytes that are equal by chance where values differ, beyond their mean of h / 256."""


@dataclass(frozen=True, slots=True)
class ScanCandidates:
    """Models that a scan proposes.

    Attributes:
        ids: the ids of the models, ascending, int64, shape ``(n,)``.
        contents: the ids of their contents, int64, shape ``(n,)``; 0 for a model that cannot have a
            sketch.
        matches: the number of bytes of their signatures that equal the query's, int16, shape
            ``(n,)``.
    """

    ids: npt.NDArray[np.int64]
    contents: npt.NDArray[np.int64]
    matches: npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Scan:
    """The numbers of bytes of each signature that equal the query's.

    Attributes:
        ids: the ids of the models, int64, shape ``(n,)``.
        contents: the ids of their contents, as in :class:`ScanCandidates`.
        matches: the numbers of equal bytes, int16, shape ``(n,)``; -1 for a model that is not
            searched.
        num_perm: the number h of values of a signature.
        floor: models with fewer equal bytes may be missing.
        complete: a function that scans all models, if some are missing.
    """

    ids: npt.NDArray[np.int64]
    contents: npt.NDArray[np.int64]
    matches: npt.NDArray[np.int16]
    num_perm: int
    floor: int = 0
    complete: Callable[[], Scan] | None = None

    def best(self, count: int) -> ScanCandidates:
        """The ``count`` models with the most equal bytes, ordered by id; ties to the oldest."""
        return self._at(_best_rows(self.matches, self.ids, self.num_perm, count))

    def others(self, best: ScanCandidates, least: int) -> ScanCandidates:
        """The models that are not among the best ones and have at least ``least`` equal bytes.

        Where that is below the floor, all models are scanned now.
        """
        if self.complete is not None and least < self.floor:
            return self.complete()._beyond(best, least)
        if not best.ids.size or least > best.matches.min():
            return self._at(np.empty(0, np.int64))
        return self._beyond(best, least)

    def _beyond(self, best: ScanCandidates, least: int) -> ScanCandidates:
        rows = np.flatnonzero(self.matches >= max(0, least))
        return self._at(rows[~np.isin(self.ids[rows], best.ids)])

    def _at(self, rows: npt.NDArray[np.int64]) -> ScanCandidates:
        return ScanCandidates(self.ids[rows], self.contents[rows], self.matches[rows])


def scan_nearest(
    columns: ByteColumns, low: npt.NDArray[np.uint8], nearest: int, least: int, dead: Rows
) -> tuple[Counts, Rows | None, int]:
    """Count the equal bytes of the rows that may be among the nearest, or of all.

    A row that agrees as often as the nearest do is missed with a probability of :data:`MISSED`. If
    too many rows may be among the nearest, all are counted and the probability is 0.

    Args:
        columns: the columns, in halves.
        low: the query's bytes, shape ``(h,)``.
        nearest: the number of nearest rows to find.
        least: rows with fewer equal bytes need not be found.
        dead: rows that are not searched.

    Returns:
        The counts; their rows, ascending, None for all; and the least count above which no row is
        missing.
    """
    first = columns.counts(low, until=1)
    first[dead] = -1
    sample = np.sort(first[:: max(1, first.size // _SAMPLE)])
    cut = int(sample[-max(1, sample.size // _PILOT)])
    rows = _at_least(first, cut)
    counts = first[rows] + columns.counts_at(low, rows)
    if rows.size > max(nearest, first.size // _MOST) or rows.size <= nearest:
        return columns.add_rest(low, first, dead), None, 0
    chance = _CHANCE_MATCHES + low.size // 256
    floor = max(least, int(np.partition(counts, -nearest)[-nearest]) - chance)
    enough = least_in_first(floor, low.size, columns.blocks[0].shape[1])
    if enough >= cut:
        return counts, rows, floor
    if np.count_nonzero(sample >= enough) * _MOST > sample.size:
        return columns.add_rest(low, first, dead), None, 0
    rows = _at_least(first, enough)
    return first[rows] + columns.counts_at(low, rows), rows, floor


@lru_cache(maxsize=1024)
def least_in_first(matches: int, num_perm: int, width: int) -> int:
    """Return the least number of equal bytes among a row's first ones, except with :data:`MISSED`.

    Args:
        matches: the number of its equal bytes in all, at any place.
        num_perm: the number of its bytes.
        width: the number of first bytes.
    """

    def log_ways(n: int, some: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(some + 1) - math.lgamma(n - some + 1)

    all_ways, below = log_ways(num_perm, width), 0.0
    for least in range(max(0, width + matches - num_perm), min(width, matches) + 1):
        ways = log_ways(matches, least) + log_ways(num_perm - matches, width - least)
        below += math.exp(ways - all_ways)
        if below > MISSED:
            return least
    return min(width, matches)


def _at_least(counts: Counts, least: int) -> Rows:
    parts = in_parts(
        counts.size, lambda part: np.flatnonzero(counts[part] >= least) + (part.start or 0)
    )
    return np.concatenate(parts)


def _best_rows(
    matches: npt.NDArray[np.int16], ids: npt.NDArray[np.int64], num_perm: int, count: int
) -> npt.NDArray[np.int64]:
    """The rows of the ``count`` largest counts above -1, in the order of their ids.

    Ties go to the lowest ids: unlike rows, ids have an order that all processes share.
    """
    best = kernels().best
    parts = in_parts(
        matches.size, lambda part: best(matches[part], num_perm, count) + (part.start or 0)
    )
    rows: npt.NDArray[np.int64] = np.concatenate(parts) if len(parts) > 1 else parts[0]
    if rows.size > count:
        counts = matches[rows]
        last = np.partition(counts, rows.size - count)[rows.size - count]
        above, tied = rows[counts > last], rows[counts == last]
        first = np.argpartition(ids[tied], count - above.size - 1)[: count - above.size]
        rows = np.concatenate([above, tied[first]])
    return rows[np.argsort(ids[rows])]
