"""Tables that no training made: sinusoids, transforms, filters, and matrices of few values.

Two strangers may hold the same one, and their lines would be equal without any common origin. What
such tables have in common is order: neighbours are alike, or few frequencies hold all of a line.
Trained matrices have neither, since their places can be exchanged; only learned positions and some
kernels have, and these are left out as well.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.lines import size_of_set

__all__ = ["LineSample", "has_few_values", "is_structured"]

Floats = npt.NDArray[np.float32]

_LEAST_LINES: Final = 16
_MOST_LINES: Final = 64
"""Lines of each direction that are looked at, at equal distances: a sixteenth of all between."""
_MOST_PLACES: Final = 4096
"""Places of each that are looked at, from the first on."""
_MOST_ORDER: Final = 0.6
"""Fixed tables have .88 and more. Matrices of MiniLM-L6 have .12 at most, but for its learned
positions, .73; uniform random ones have .21."""


class LineSample:
    """Some rows and some columns of a matrix, at equal distances, taken as its rows are read.

    Args:
        rows: the rows of the matrix.
        columns: its columns.

    Attributes:
        row_numbers: those of the rows that are kept, shape ``(r,)``.
        rows: these rows, with all their entries, shape ``(r, columns)``.
        column_numbers: those of the columns that are kept, shape ``(c,)``.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.row_numbers, self.column_numbers = _spread(rows), _spread(columns)
        self.rows = np.empty((self.row_numbers.size, columns), np.float32)
        self._columns = np.empty((self.column_numbers.size, min(rows, _MOST_PLACES)), np.float32)

    @classmethod
    def of(cls, matrix: Floats) -> LineSample:
        """The sample of a matrix in memory."""
        sample = cls(*matrix.shape)
        sample.add(0, matrix)
        return sample

    def add(self, begin: int, values: Floats) -> None:
        """Take the rows from one on; each is taken once.

        Args:
            begin: the first of them.
            values: shape ``(m, columns)``.
        """
        first, last = np.searchsorted(self.row_numbers, (begin, begin + len(values)))
        self.rows[first:last] = values[self.row_numbers[first:last] - begin]
        places = self._columns[:, begin : begin + len(values)]
        places[:] = values[: places.shape[1], self.column_numbers].T

    @property
    def lines(self) -> tuple[Floats, Floats]:
        """The first places of the rows, and of the columns; a line each."""
        return self.rows[:, :_MOST_PLACES], self._columns


def is_structured(sample: LineSample) -> bool:
    """Whether neighbours of a matrix are alike, or few frequencies hold the power of its lines.

    Args:
        sample: of lines that are finite.
    """
    return any(
        _neighbours(lines) > _MOST_ORDER or _strongest_frequencies(lines) > _MOST_ORDER
        for lines in map(_centred, sample.lines)
    )


def has_few_values(sample: LineSample) -> bool:
    """Whether so many magnitudes of most lines are equal that the largest cannot be told apart.

    So ternary weights and one-hot tables have no keys. Their places differ once they are scaled,
    and then ties would be broken by the scales alone.

    Args:
        sample: of lines that are finite.
    """
    return any(_is_tied(np.abs(lines)) for lines in sample.lines)


def _spread(side: int) -> npt.NDArray[np.int64]:
    """The numbers of the lines that are looked at, of so many."""
    count = min(_MOST_LINES, max(_LEAST_LINES, side // 16))
    return np.linspace(0, side - 1, count).astype(np.int64)


def _centred(lines: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    wide = lines.astype(np.float64)
    centred: npt.NDArray[np.float64] = wide - wide.mean(axis=1, keepdims=True)
    return centred


def _neighbours(centred: npt.NDArray[np.float64]) -> float:
    """The correlation of adjacent values in the median line."""
    variance = np.square(centred).mean(axis=1)
    products = (centred[:, :-1] * centred[:, 1:]).mean(axis=1)
    return _median_share(products, variance)


def _strongest_frequencies(centred: npt.NDArray[np.float64]) -> float:
    """The share of the power of the median line that its strongest 2% of the frequencies hold."""
    power = np.square(np.abs(np.fft.rfft(centred, axis=1)))[:, 1:]
    count = max(2, power.shape[1] // 50)
    strongest = np.partition(power, power.shape[1] - count, axis=1)[:, -count:].sum(axis=1)
    return _median_share(strongest, power.sum(axis=1))


def _median_share(parts: npt.NDArray[np.float64], wholes: npt.NDArray[np.float64]) -> float:
    """The median of parts of their wholes, over the lines that are not constant; 0 for none."""
    varied = wholes > 0
    return float(np.median(parts[varied] / wholes[varied])) if varied.any() else 0.0


def _is_tied(magnitudes: npt.NDArray[np.float32]) -> bool:
    magnitudes = magnitudes[magnitudes.any(axis=1)]  # lines of zeros say nothing of the others
    if not len(magnitudes):
        return True
    size = size_of_set(magnitudes.shape[1])
    at = magnitudes.shape[1] - size
    least = np.partition(magnitudes, at, axis=1)[:, at, np.newaxis]
    return bool(np.median(np.count_nonzero(magnitudes >= least, axis=1)) > 2 * size)
