"""The analytic Gaussian mechanism: how much noise a claim of differential privacy needs.

Source: Balle and Wang, "Improving the Gaussian mechanism for differential privacy" (ICML 2018).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from modelkin.errors import InvalidParameter

__all__ = ["MAX_EPSILON", "gaussian_delta", "gaussian_sigma"]

MAX_EPSILON: Final = 100.0
"""The largest epsilon: beyond it a claim is worth nothing, and its arithmetic leaves float64."""

_STEPS: Final = 200
"""The most steps of the bisection; it ends at the digits of float64 well before."""


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


def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))
