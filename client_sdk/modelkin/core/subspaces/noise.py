"""Analyze Gauss: Gaussian noise on a second moment, calibrated by the analytic mechanism.

Sources: Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss" (STOC 2014); Balle and Wang, "Improving
the Gaussian mechanism for differential privacy" (ICML 2018), Algorithm 1; of what noise adds to
eigenvalues, Benaych-Georges and Nadakuditi, "The eigenvalues and eigenvectors of finite, low rank
perturbations of large random matrices" (Advances in Mathematics, 2011).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter

__all__ = [
    "MAX_EPSILON",
    "gaussian_delta",
    "gaussian_sigma",
    "noisy_moment",
    "without_noise",
]

Floats = npt.NDArray[np.float64]

MAX_EPSILON: Final = 100.0
"""Beyond it a claim is worth nothing, and its arithmetic leaves float64."""

_LEAST_SHARE: Final = 0.01
"""Of the energy of a direction that may be noise alone, what counts where there is no other."""

_STEPS: Final = 200
"""Of the bisection; it ends at the digits of float64 well before."""


@lru_cache(256)
def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The least standard deviation of Gaussian noise for a sensitivity of 1.

    Args:
        epsilon: above 0, at most :data:`MAX_EPSILON`.
        delta: above 0 and below 1.

    Raises:
        InvalidParameter: an argument is out of its range.
    """
    if not 0.0 < epsilon <= MAX_EPSILON:
        message = f"epsilon must be above 0 and at most {MAX_EPSILON:g}, not {epsilon:g}"
        raise InvalidParameter(message, field="epsilon")
    if not 0.0 < delta < 1.0:
        raise InvalidParameter(f"delta must be above 0 and below 1, not {delta:g}", field="delta")
    low, high = 1e-6, 1e12
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        if gaussian_delta(middle, epsilon) > delta:
            low = middle
        else:
            high = middle
    return high


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """The least delta at an epsilon, for a sensitivity of 1 (Balle and Wang, Theorem 8)."""
    first, second = 0.5 / sigma - epsilon * sigma, -0.5 / sigma - epsilon * sigma
    return _normal_cdf(first) - math.exp(epsilon) * _normal_cdf(second)


def noisy_moment(rows: Floats, sigma: float, rng: np.random.Generator) -> Floats:
    """``rows.T @ rows`` with Gaussian noise, symmetric and alike in all directions.

    One row of length 1 more or less changes the sum by 1 in Frobenius norm. In that norm an entry
    off the diagonal counts twice, so it needs noise of half the variance. Analyze Gauss gives all
    entries the same, for the norm of the upper triangle: the same privacy by more noise.

    Args:
        rows: shape ``(n, m)``, of length 1 each; n may be 0.
        sigma: standard deviation of the noise along any direction, ``u @ noise @ u``.
        rng: draws it; a seed that others know undoes it.
    """
    size = rows.shape[1]
    drawn = rng.normal(0.0, sigma, (size, size))
    noise = np.triu(drawn, 1) / math.sqrt(2.0)
    moment: Floats = rows.T @ rows + noise + noise.T + np.diag(np.diag(drawn))
    return moment


def without_noise(energies: Floats, sigma: float, size: int) -> Floats:
    """The energies that the samples have along the first eigenvectors of a noisy moment.

    Noise of size m alone has eigenvalues up to ``sigma sqrt(2 m)``. An eigenvalue above was a
    smaller one, and its eigenvector is turned away from the samples' own. What is left counts, so
    that clients are not compared by their noise. This reads nothing but the noisy moment, so it
    takes no privacy.

    Args:
        energies: eigenvalues above 0, descending; shape ``(d,)``.
        sigma: of the noise.
        size: m.

    Returns:
        Those of the directions that stand out, or a hundredth of the first one where none does.
    """
    variance = size * sigma**2 / 2.0
    seen = energies[energies > 2.0 * math.sqrt(variance)]
    if not seen.size:
        return energies[:1] * _LEAST_SHARE
    own = (seen + np.sqrt(seen**2 - 4.0 * variance)) / 2.0
    return np.maximum(own - variance / own, seen * _LEAST_SHARE)


def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))
