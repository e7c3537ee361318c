"""The loop of ``reference_pairs``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.compiled import compiled, read_only

Counts = npt.NDArray[np.int16]


def match_table(rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> Counts:
    matches = np.empty((rows.shape[0], columns.shape[0]), np.int16)
    _match_table(read_only(rows), read_only(columns), matches)
    return matches


@compiled
def _match_table(rows: Any, columns: Any, matches: Any) -> None:
    # A few columns at a time: they stay in the nearest cache while all rows pass by.
    step = max(1, 32768 // max(1, columns.shape[1] * columns.itemsize))
    for begin in range(0, columns.shape[0], step):
        for i in range(rows.shape[0]):
            row = rows[i]
            for j in range(begin, min(begin + step, columns.shape[0])):
                column, equal = columns[j], np.int32(0)
                for k in range(row.size):
                    equal = np.int32(equal + np.int32(row[k] == column[k]))
                matches[i, j] = np.int16(equal)


def warm() -> None:
    """Compile the loop for all its types."""
    for dtype in (np.uint8, np.uint32, np.uint64):
        match_table(np.zeros((1, 1), dtype), np.zeros((1, 1), dtype))
