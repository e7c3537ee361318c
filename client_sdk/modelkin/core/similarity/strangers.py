"""Strangers: how unlikely so large a similarity is between models that are unrelated.

Networks trained apart are not quite two random draws: they share scales within a tensor, and have a
kappa of .1 at the most. So the null is that an index of the smaller support is in the other with
the probability that makes kappa .1. As many by chance, or more, have a probability of at most

    P = exp(-n KL(q || p)),

by Chernoff's bound: n indices are in the smaller support, a share q of them in the other, and p is
expected. (It holds for draws without replacement too, and for probabilities that differ by tensor.)
An estimate counts as what it is: h trials make as little evidence as h indices.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.estimators import RULE_OF_THREE
from modelkin.core.similarity.constants import AT_CHANCE

__all__ = ["MAX_P", "is_at_chance", "log10_p", "log10_ps", "trials", "trials_of"]

Floats = npt.NDArray[np.float64]

MAX_P: Final = 0.05
"""The P, times the comparisons that were made, from which on a similarity may be by chance."""
_ROUNDING: Final = 1e-12
"""The room that rounding leaves where chance alone gives S = 1."""
_LEAST_TRIALS: Final = 1e-9
"""Evidence of nothing, and still a number to divide by."""


def log10_p(
    similarity: float,
    expected: float,
    sizes: tuple[float, float],
    standard_error: float = 0.0,
) -> float:
    """The decimal logarithm of P, of two models with a known chance; 0 at chance, NaN as below.

    Args:
        similarity: S of the two.
        expected: S by chance in each tensor.
        sizes: a and b, how many indices of each of the two are compared, at least 1.
        standard_error: that of S; 0 where it is exact.
    """
    a, b = (np.array([size], np.float64) for size in sizes)
    of_estimate = trials_of(similarity, standard_error)
    found = log10_ps(np.array([similarity]), np.array([expected]), a, b, trials(a, b, of_estimate))
    return float(found[0])


def log10_ps(
    similarities: Floats, expected: Floats, a: Floats, b: Floats, evidence: Floats
) -> Floats:
    """The decimal logarithm of P of many pairs; NaN where chance is not known, or gives S = 1.

    Args:
        similarities: S, of any shape, as all others.
        expected: S by chance; NaN where that is not known.
        a: how many indices the first of each pair has.
        b: how many the second has.
        evidence: the trials behind each S, see :func:`trials`.
    """
    # Of models of two sizes, at most the smaller one's indices are shared.
    of_smaller = (a + b) / (2.0 * np.minimum(a, b))
    least = expected + AT_CHANCE * (1.0 - expected)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.minimum(1.0, np.maximum(least * of_smaller, 1e-300))
        q = np.clip(similarities * of_smaller, p, 1.0)
        inside = q * np.log(q / p)
        outside = np.where(q < 1.0, (1.0 - q) * np.log((1.0 - q) / (1.0 - p)), 0.0)
        found = -evidence * np.where(p < 1.0, inside + outside, 0.0) / math.log(10)
    unknown = np.isnan(expected) | (expected >= 1.0 - _ROUNDING)
    return np.where(unknown, np.nan, np.minimum(0.0, found))


def trials(a: Floats, b: Floats, of_estimate: float | Floats = math.inf) -> Floats:
    """The indices that are evidence, or as few as an estimate is worth: variances add up.

    Args:
        a: how many indices the first of each pair has.
        b: how many the second has.
        of_estimate: the trials of the estimates; infinity of exact similarities.
    """
    found: Floats = 1.0 / (1.0 / np.minimum(a, b) + 1.0 / np.asarray(of_estimate, np.float64))
    return found


def trials_of(similarity: float, standard_error: float) -> float:
    """The trials h by which S was estimated with this error; infinity of an exact one.

    Where all or none of h agreed, the error is the bound of :mod:`modelkin.core.estimators`.
    """
    if standard_error <= 0.0:
        return math.inf
    jaccard = similarity / (2.0 - similarity)
    if not 0.0 < jaccard < 1.0:
        return RULE_OF_THREE / standard_error * (2.0 if jaccard <= 0.0 else 0.5)
    found = 4.0 * jaccard * (1.0 - jaccard) / ((1.0 + jaccard) ** 4 * standard_error**2)
    return max(found, _LEAST_TRIALS)


def is_at_chance(log10_p: float, comparisons: int = 1) -> bool:
    """Whether a similarity may be that of unrelated models, the nearest among so many.

    Args:
        log10_p: the decimal logarithm of its P.
        comparisons: how many pairs were compared, of which this is one, at least 1.
    """
    return log10_p + math.log10(max(1, comparisons)) >= math.log10(MAX_P)
