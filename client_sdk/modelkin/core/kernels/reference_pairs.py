"""All pairs of two sets of signatures, in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int16]


def match_table(rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> Counts:
    """How many values each row and each column have in common, place by place.

    Args:
        rows: uint8, uint32 or uint64, shape ``(a, h)``, h up to 32,767.
        columns: of the same dtype, shape ``(b, h)``.

    Returns:
        Shape ``(a, b)``.
    """
    matches = np.empty((rows.shape[0], columns.shape[0]), np.int16)
    for i, row in enumerate(rows):
        matches[i] = np.count_nonzero(columns == row, axis=1)
    return matches
