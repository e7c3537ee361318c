"""All pairs of signatures, in numpy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int16]
Keys = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

ROW_BITS: Final = 32
LAST_ROW: Final = (1 << ROW_BITS) - 1
"""A key is how many values agree, above these bits, and how far a row is from the last one."""


def match_table(rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> Counts:
    """How many values each row and each column have in common, place by place.

    Args:
        rows: values, uint8, uint32 or uint64, shape ``(a, h)``, h up to 32,767.
        columns: values of the same dtype, shape ``(b, h)``.

    Returns:
        Shape ``(a, b)``.
    """
    matches = np.empty((rows.shape[0], columns.shape[0]), np.int16)
    for i, row in enumerate(rows):
        matches[i] = np.count_nonzero(columns == row, axis=1)
    return matches


def keep_nearest(values: npt.NDArray[Any], low: Words, begin: int, end: int, nearest: Keys) -> None:
    """Compare some rows with all later ones, and keep the nearest of each of both.

    Args:
        values: uint32 or uint64, shape ``(n, h)``.
        low: the lowest byte of each value, padded with zeros, ``(n, ceil(h / 8))``: those that
            agree bound how many values do.
        begin: the first row that is compared.
        end: one more than the last row that is compared.
        nearest: a heap of keys for each row, ``(n, k)``, the least one first; -1 for none. Changed.
    """
    del low
    for row in range(begin, end):
        later = np.arange(row + 1, len(values))
        matches = np.count_nonzero(values[row + 1 :] == values[row], axis=1) << ROW_BITS
        nearest[row] = np.sort(np.append(nearest[row], matches | (LAST_ROW - later)))[
            -nearest.shape[1] :
        ]
        nearest[row + 1 :, 0] = np.maximum(nearest[row + 1 :, 0], matches | (LAST_ROW - row))
        nearest[row + 1 :].sort(axis=1)
