"""Chance: how many keys two strangers have in common, in closed form, and how unlikely more are.

Two random sets of t of n places have one key if the first r members of their union, in the order
of the walk, lie in both. The union of sets that share k entries has 2t - k, so

    q(n) = sum over k of hypergeometric(k; n, t, t) * C(k, r) / C(2t - k, r).

Fingerprints that keep one key in ``scale`` then have ``lambda = sum over n of L L' q(n) / scale``
equal keys by chance, with L and L' lines of length n; the number is Poisson's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from modelkin.core.fingerprints.lines import members_of_key, size_of_set

__all__ = ["collision_probability", "expected_keys", "log10_tail", "power_of_ten"]

_NEGLIGIBLE: Final = 1e-40
"""A weight, of the greatest one, beyond which no term is seen in a float64."""


def collision_probability(length: int) -> float:
    """q(n): the probability that two random lines of this length have one key.

    Right to a relative error of 1e-12.
    """
    return _collisions(length, size_of_set(length), members_of_key(length))


@lru_cache(maxsize=1024)
def _collisions(n: int, t: int, r: int) -> float:
    # Weights are of the most likely k, and their sum is what they are divided by: so no factorial
    # is computed, and nothing is lost where the probability of k = 0 is below the least float.
    mode = (t + 1) ** 2 // (n + 2)
    weights = {mode: 1.0}
    weight = 1.0
    for k in range(mode, t):
        weight *= (t - k) ** 2 / ((k + 1) * (n - 2 * t + k + 1))
        weights[k + 1] = weight
        if weight < _NEGLIGIBLE and k > mode + r:
            break
    weight = 1.0
    for k in range(mode, 0, -1):
        weight *= k * (n - 2 * t + k) / (t - k + 1) ** 2
        weights[k - 1] = weight
        if weight < _NEGLIGIBLE:
            break
    shared = math.fsum(
        weight * math.prod((k - i) / (2 * t - k - i) for i in range(r))
        for k, weight in weights.items()
        if k >= r
    )
    return shared / math.fsum(weights.values())


def expected_keys(first: Mapping[int, int], second: Mapping[int, int], scale: int) -> float:
    """Lambda: how many keys two strangers are expected to have in common.

    Args:
        first: the lines of each length that one of them has.
        second: those of the other.
        scale: the coarser of their scales: both keep one key in so many.
    """
    pairs = (
        count * second[length] * collision_probability(length)
        for length, count in first.items()
        if length in second
    )
    return math.fsum(pairs) / scale


def log10_tail(count: int, expected: float) -> float:
    """The decimal logarithm of the probability of so many equal keys, or more, by chance.

    It stays exact far below the least float: two copies of a model have 10^-10000 and less.

    Args:
        count: the equal keys that were found.
        expected: lambda, positive where any are expected; 0 leaves no chance at all.
    """
    if count <= 0:
        return 0.0
    if expected <= 0:
        return -math.inf
    if count <= expected:
        below = math.fsum(
            math.exp(k * math.log(expected) - expected - math.lgamma(k + 1)) for k in range(count)
        )
        return math.log10(1 - below)
    first = count * math.log(expected) - expected - math.lgamma(count + 1)
    terms, term = [1.0], 1.0
    while term > 1e-18:
        term *= expected / (count + len(terms))
        terms.append(term)
    return (first + math.log(math.fsum(terms))) / math.log(10)


def power_of_ten(logarithm: float) -> str:
    """A probability by its decimal logarithm, ``10^-257``: most are below the least float."""
    return f"10^{round(logarithm)}" if logarithm < -3 else f"{10**logarithm:.3f}"
