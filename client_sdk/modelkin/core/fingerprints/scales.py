"""The scales of places: what magnitudes are divided by before those of a line are compared."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels
from modelkin.core.kernels.reference.lines import WINDOWS

__all__ = ["PlaceScales", "reciprocal_rms"]

Floats = npt.NDArray[np.float32]


class PlaceScales:
    """The reciprocal root mean square of each place, of the rows and of the columns of a matrix.

    The sums are exact, so they do not depend on the order of the rows, on the stretches that are
    added, or on the machine. All rows are added before a scale is asked for.

    Args:
        rows: the rows of the matrix.
        columns: its columns.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self._of_rows = np.zeros((WINDOWS, rows), np.uint64)
        self._of_columns = np.zeros((WINDOWS, columns), np.uint64)

    def add(self, begin: int, values: Floats) -> None:
        """Take the rows from one on; each is taken once.

        Args:
            begin: the first of them.
            values: finite, shape ``(m, columns)``.
        """
        sums = np.zeros((WINDOWS, len(values)), np.uint64)
        kernels().add_squares(values, self._of_columns, sums)
        self._of_rows[:, begin : begin + len(values)] = sums

    @cached_property
    def of_rows(self) -> Floats:
        """The scale of each place of a row: one for each column, shape ``(columns,)``."""
        return reciprocal_rms(_total(self._of_columns), self._of_rows.shape[1])

    @cached_property
    def of_columns(self) -> Floats:
        """The scale of each place of a column: one for each row, shape ``(rows,)``."""
        return reciprocal_rms(_total(self._of_rows), self._of_columns.shape[1])


def _total(windows: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    total = np.zeros(windows.shape[1])
    for window in range(len(windows) - 1, -1, -1):  # one order, so one rounding
        total += np.ldexp(windows[window].astype(np.float64), 32 * window)
    return total


def reciprocal_rms(total: npt.NDArray[np.float64], count: int) -> Floats:
    """What magnitudes are multiplied by at each place, shape ``(n,)``.

    Args:
        total: the sums of squares, as integers of ``2^-276`` that are rounded once they are added
            from the greatest window on; shape ``(n,)``.
        count: the squares in each sum.
    """
    rms = np.ldexp(np.sqrt(total / count), -138)
    scales = np.zeros(len(rms))
    np.divide(1, rms, out=scales, where=rms > 0)
    return np.minimum(scales, np.finfo(np.float32).max).astype(np.float32)
