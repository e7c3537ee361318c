"""The keys of columns, of a matrix that is read by rows and never held.

Of each column the largest magnitudes so far are kept, some 6% of its entries. A guess says which
are not worth it: where it was too high for a column, too few are kept, and the column is read
again. So guesses decide the time that it takes, and no key.
"""

from __future__ import annotations

from math import ceil
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.lines import members_of_key, size_of_set, walk
from modelkin.core.fingerprints.scales import PlaceScales
from modelkin.core.fingerprints.tables import LineSample
from modelkin.core.kernels.choice import kernels

__all__ = ["ColumnKeys", "groups_of_columns", "guesses_of_bounds"]

Floats = npt.NDArray[np.float32]

MOST_KEPT: Final = 1 << 23
"""Entries of columns that are kept at a time, of 8 bytes; beyond, the matrix is read once more."""
_MARGIN: Final = 2.5
"""How many times its share of a column a guess lets through."""


class ColumnKeys:
    """The keys of some columns of a matrix in the making.

    Args:
        columns: their numbers, ascending, shape ``(n,)``.
        scales: of the places of a column, shape ``(rows,)``.
        guesses: the least magnitude of each column that may be in its set, shape ``(n,)``.
    """

    def __init__(self, columns: npt.NDArray[np.int64], scales: Floats, guesses: Floats) -> None:
        self._columns, self._scales = columns, scales
        self._ranks, self._size = walk(scales.size), size_of_set(scales.size)
        room = _room(scales.size)
        self._bounds = np.maximum(guesses, np.nextafter(np.float32(0), np.float32(1)))
        self._counts = np.zeros(columns.size, np.int64)
        self._magnitudes = np.empty((columns.size, room), np.float32)
        self._places = np.empty((columns.size, room), np.uint32)

    def take(self, begin: int, values: Floats) -> None:
        """Take the rows from one on; each is taken once.

        Args:
            begin: the first of them.
            values: all columns of the matrix, shape ``(m, columns)``.
        """
        if self._columns.size < values.shape[1]:
            values = np.ascontiguousarray(values[:, self._columns])
        rows = slice(begin, begin + len(values))
        kernels().keep_largest(
            values,
            self._scales[rows],
            self._ranks[rows],
            self._size,
            self._bounds,
            self._counts,
            self._magnitudes,
            self._places,
        )

    def finish(self) -> tuple[tuple[Any, Any], npt.NDArray[np.bool_]]:
        """Their keys and least magnitudes, as in :class:`Keys`, and which have too few to tell."""
        length = self._scales.size
        found = kernels().keys_of_largest(
            self._counts,
            self._magnitudes,
            self._places,
            length,
            self._size,
            members_of_key(length),
        )
        return found, self._counts < self._size


def groups_of_columns(numbers: npt.NDArray[np.int64], rows: int) -> list[npt.NDArray[np.int64]]:
    """Divide columns into groups whose entries are kept at a time.

    Args:
        numbers: those of the columns.
        rows: the length of each.
    """
    step = max(1, MOST_KEPT // _room(rows))
    return [numbers[begin : begin + step] for begin in range(0, numbers.size, step)]


def guesses_of_bounds(sample: LineSample, scales: PlaceScales) -> Floats:
    """Magnitudes that more entries of each column reach than its set has, shape ``(columns,)``.

    A sample of a column says it roughly. The root mean square of the column does, too, where its
    values are distributed as those of the others. The lower of the two is a good guess.
    """
    rows = scales.of_columns.size
    share = _MARGIN * size_of_set(rows) / rows
    if share >= 1:
        return np.zeros(sample.rows.shape[1], np.float32)
    at = len(sample.rows) - min(len(sample.rows), ceil(share * len(sample.rows)))
    magnitudes = np.abs(sample.rows) * scales.of_columns[sample.row_numbers, np.newaxis]
    own = np.partition(magnitudes, at, axis=0)[at]
    reciprocal = scales.of_rows.astype(np.float64)  # the products may be beyond float32
    alike = np.quantile(magnitudes[:, : 1 << 14] * reciprocal[: 1 << 14], 1 - share)
    of_all = np.divide(alike, reciprocal, out=np.zeros_like(reciprocal), where=reciprocal > 0)
    guesses: Floats = np.minimum(own, of_all).astype(np.float32)
    return guesses


def _room(rows: int) -> int:
    """The entries of a column that are kept: those of a set and of ties, and as many new ones."""
    size = size_of_set(rows)
    return min(rows, 2 * size + 1 + max(16, size))
