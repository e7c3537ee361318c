"""The rules by which an aggregator makes one shard of its members' shards.

Sums are of float64, in the members' order, and rounded once: the same bits for any number of shards
and every carrier. Krum and Bulyan compare whole vectors, which no aggregator has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter

__all__ = ["TRIMMED", "combine", "mean", "median", "trimmed_mean"]

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

TRIMMED: Final = 0.1
"""The share of values that a trimmed mean leaves out at each end."""

_STEP = 1 << 14
"""Values a step: float64 sums of it stay in the second-level cache."""


def mean(cells: Sequence[Floats], weights: Sequence[float]) -> Floats:
    """The weighted mean of some members' values.

    Args:
        cells: shape ``(size,)`` each, in the roster's order.
        weights: positive, of any sum.

    Returns:
        ``sum(w * v) / sum(w)``, shape ``(size,)``.
    """
    result = np.empty_like(cells[0])
    total = float(sum(weights))
    for at in range(0, result.size, _STEP):
        result[at : at + _STEP] = weighted_sum([c[at : at + _STEP] for c in cells], weights) / total
    return result


def weighted_sum(cells: Sequence[Floats], weights: Sequence[float]) -> Doubles:
    """``sum(w * v)`` in float64, in the order given."""
    summed = np.zeros(cells[0].size)
    for values, weight in zip(cells, weights, strict=True):
        summed += values.astype(np.float64) * weight
    return summed


def median(cells: Sequence[Floats], weights: Sequence[float]) -> Floats:
    """The median of each coordinate; weights count for nothing, so that no member can lie by them.

    Source: Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates",
    2018.
    """
    del weights
    return _by_stretches(cells, lambda values: np.median(values, axis=0))


def trimmed_mean(
    cells: Sequence[Floats], weights: Sequence[float], share: float = TRIMMED
) -> Floats:
    """The mean of each coordinate without its largest and smallest values; weights do not count.

    Args:
        cells: shape ``(size,)`` each.
        weights: are not used, as in :func:`median`.
        share: the share of the members which is left out at each end, rounded up to whole members.

    Raises:
        InvalidParameter: nothing would be left.

    Source: as :func:`median`.
    """
    del weights
    cut = int(np.ceil(share * len(cells)))
    if 2 * cut >= len(cells):
        raise InvalidParameter(
            f"a trimmed mean leaves {cut} of {len(cells)} members out at each end: there are too "
            f"few",
            field="rule",
        )

    def middle(values: Doubles) -> Doubles:
        ordered: Doubles = np.sort(values, axis=0)[cut : len(cells) - cut]
        mean_of_middle: Doubles = np.add.reduce(ordered, axis=0) / len(ordered)
        return mean_of_middle

    return _by_stretches(cells, middle)


def _by_stretches(cells: Sequence[Floats], rule: Callable[[Doubles], Doubles]) -> Floats:
    result = np.empty_like(cells[0])
    for at in range(0, result.size, _STEP):
        values = np.stack([cell[at : at + _STEP] for cell in cells]).astype(np.float64)
        result[at : at + _STEP] = rule(values)
    return result


_RULES: Final[dict[str, Callable[[Sequence[Floats], Sequence[float]], Floats]]] = {
    "mean": mean,
    "median": median,
    "trimmed_mean": trimmed_mean,
}


def combine(rule: str, cells: Sequence[Floats], weights: Sequence[float]) -> Floats:
    """Combine members' values by a rule of :data:`modelkin.federation.shards.plan.RULES`."""
    return _RULES[rule](cells, weights)
