"""Formulas between intersection sizes, similarity S, Jaccard J and its standard error."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = [
    "RULE_OF_THREE",
    "jaccard_error",
    "jaccard_of",
    "similarity_from_jaccard",
    "similarity_of",
    "standard_error",
    "standard_errors",
]

RULE_OF_THREE = 3.0
"""An event that never came in h trials has a probability of at most ``3 / h``, with 95% confidence:
for any larger one, never is less likely than 1 in 20.
"""


def similarity_of(shared: int, size_a: int, size_b: int) -> float:
    """``S = 2 * shared / (size_a + size_b)``; the sizes are not both 0."""
    return 2 * shared / (size_a + size_b)


def jaccard_of(similarity: float) -> float:
    """``J = S / (2 - S)``."""
    return similarity / (2.0 - similarity)


def similarity_from_jaccard(jaccard: float) -> float:
    """``S = 2J / (1 + J)``."""
    return 2.0 * jaccard / (1.0 + jaccard)


def jaccard_error(jaccard: float, num_perm: int) -> float:
    """The standard error ``sqrt(J (1 - J) / h)`` of a J estimated by h trials, above 0.

    Each trial agrees with probability J. If none or all agree, the formula gives 0, which proves
    nothing for certain: the rule of three's bound ``3 / h`` stands in (1 where h is below 3).

    Args:
        jaccard: the estimate, the share of the trials that agree.
        num_perm: h, at least 1: the values of a signature, or the union's members in a sketch.
    """
    if 0.0 < jaccard < 1.0:
        return math.sqrt(jaccard * (1.0 - jaccard) / num_perm)
    return RULE_OF_THREE / max(RULE_OF_THREE, num_perm)


def standard_error(jaccard: float, num_perm: int) -> float:
    """The standard error ``2 / (1 + J)^2 * sqrt(J (1 - J) / h)`` of an S from h trials, above 0.

    If none or all agree, it is an upper bound by the rule of three: J is at most ``3 / h``, or at
    least ``1 - 3 / h``, with 95% confidence, and the error is how far S is from the estimate there.
    For h = 256 this gives .023 where S is 0, and .006 where S is 1.

    Args:
        jaccard: as in :func:`jaccard_error`.
        num_perm: h, as in :func:`jaccard_error`.
    """
    error = jaccard_error(jaccard, num_perm)
    if 0.0 < jaccard < 1.0:
        return 2.0 / (1.0 + jaccard) ** 2 * error
    if jaccard <= 0.0:
        return similarity_from_jaccard(error)
    return 1.0 - similarity_from_jaccard(1.0 - error)


def standard_errors(jaccards: npt.NDArray[np.float64], num_perm: int) -> npt.NDArray[np.float64]:
    """:func:`standard_error` of many estimates, each by h trials."""
    spread = np.sqrt(np.clip(jaccards * (1.0 - jaccards), 0.0, None) / num_perm)
    inside = 2.0 / (1.0 + jaccards) ** 2 * spread
    none, every = standard_error(0.0, num_perm), standard_error(1.0, num_perm)
    errors: npt.NDArray[np.float64] = np.where(
        jaccards <= 0.0, none, np.where(jaccards >= 1.0, every, inside)
    )
    return errors
