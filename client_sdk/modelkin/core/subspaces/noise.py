"""Analyze Gauss: Gaussian noise on a second moment, calibrated by the analytic mechanism.

Sources: Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss" (STOC 2014); Balle and Wang, "Improving
the Gaussian mechanism for differential privacy" (ICML 2018), Algorithm 1.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter

__all__ = ["MAX_EPSILON", "gaussian_sigma", "noisy_moment"]

MAX_EPSILON: Final = 100.0
"""Beyond it a claim is worth nothing, and its arithmetic leaves float64."""

_STEPS: Final = 200
"""Of the bisection; it ends at the digits of float64 well before."""


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
        if _delta_of(middle, epsilon) > delta:
            low = middle
        else:
            high = middle
    return high


def noisy_moment(
    rows: npt.NDArray[np.float64], sigma: float, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """``rows.T @ rows`` with independent noise on and above the diagonal, mirrored below it.

    One row of length 1 more or less changes the sum by 1 in Frobenius norm, and its upper triangle
    by no more.

    Args:
        rows: shape ``(n, m)``, of length 1 each; n may be 0.
        sigma: standard deviation of the noise.
        rng: draws it; a seed that others know undoes it.
    """
    size = rows.shape[1]
    noise = np.triu(rng.normal(0.0, sigma, (size, size)))
    moment: npt.NDArray[np.float64] = rows.T @ rows + noise + np.triu(noise, 1).T
    return moment


def _delta_of(sigma: float, epsilon: float) -> float:
    """The delta that noise has at an epsilon (Balle and Wang, Theorem 8)."""
    first, second = 0.5 / sigma - epsilon * sigma, -0.5 / sigma - epsilon * sigma
    return _normal_cdf(first) - math.exp(epsilon) * _normal_cdf(second)


def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))
