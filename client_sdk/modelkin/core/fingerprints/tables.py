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

__all__ = ["has_few_values", "is_structured"]

_LEAST_LINES: Final = 16
_MOST_LINES: Final = 64
"""Lines of each direction that are looked at, at equal distances: a sixteenth of all between."""
_MOST_PLACES: Final = 4096
"""Places of each that are looked at, from the first on."""
_MOST_ORDER: Final = 0.6
"""Fixed tables have .88 and more. Matrices of MiniLM-L6 have .12 at most, but for its learned
positions, .73; uniform random ones have .21."""


def is_structured(matrix: npt.NDArray[np.float32]) -> bool:
    """Whether neighbours of a matrix are alike, or few frequencies hold the power of its lines.

    Args:
        matrix: finite, shape ``(rows, columns)``.
    """
    return any(
        _neighbours(lines) > _MOST_ORDER or _strongest_frequencies(lines) > _MOST_ORDER
        for lines in map(_centred, _sampled(matrix))
    )


def has_few_values(matrix: npt.NDArray[np.float32]) -> bool:
    """Whether so many magnitudes of most lines are equal that the largest cannot be told apart.

    So ternary weights and one-hot tables have no keys. Their places differ once they are scaled,
    and then ties would be broken by the scales alone.

    Args:
        matrix: finite, shape ``(rows, columns)``.
    """
    return any(_is_tied(np.abs(lines)) for lines in _sampled(matrix))


def _sampled(matrix: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    rows, columns = (
        np.linspace(0, side - 1, min(_MOST_LINES, max(_LEAST_LINES, side // 16))).astype(np.int64)
        for side in matrix.shape
    )
    return matrix[rows, :_MOST_PLACES], matrix[:_MOST_PLACES, columns].T


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
    size = size_of_set(magnitudes.shape[1])
    at = magnitudes.shape[1] - size
    least = np.partition(magnitudes, at, axis=1)[:, at, np.newaxis]
    return bool(np.median(np.count_nonzero(magnitudes >= least, axis=1)) > 2 * size)
