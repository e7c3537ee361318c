"""The rarity of an index in a space, and a donor's share of a target weighted by it.

The weight of an index in ``c`` of ``n`` supports is ``log((n + 1) / (c + 1))``, the inverse
document frequency of text retrieval: 0 for an index in all of them. Weights are integers, multiples
of 2^-20, so that sums do not depend on their order. The caller chooses the supports to count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels

__all__ = ["Rarity", "index_weights", "rarities", "rarity_of"]

Words = npt.NDArray[np.uint64]
Weights = npt.NDArray[np.int64]

WEIGHT_SCALE = 1 << 20


@dataclass(frozen=True, slots=True)
class Rarity:
    """A donor's share of a target, weighted by rarity.

    Attributes:
        share: the share of the weight of all indices of the target, 0 to 1; for equal weights and
            supports of equal size the paper's S.
        gain: the mean rarity of the shared indices over the mean rarity of all indices of the
            target: above 1 the shared ones are rarer. 1 if no index is shared.
    """

    share: float
    gain: float


def rarity_of(n: int, c: int) -> float:
    """The rarity of an index in c of n supports: 0 in all of them."""
    return math.log((n + 1) / (c + 1))


def index_weights(holders: Words, columns: int) -> Weights:
    """The weight of each index of a target, by how many of some supports hold it.

    Args:
        holders: the bits of each of these supports, shape ``(n, ceil(columns / 64))``; n may be 0.
        columns: how many indices there are.

    Returns:
        Shape ``(columns,)``, not all 0: where every support holds every index, all weigh the same.
    """
    n = holders.shape[0]
    table = np.array([round(WEIGHT_SCALE * rarity_of(n, c)) for c in range(n + 1)], np.int64)
    weights: Weights = table[kernels().column_counts(holders, columns)]
    return weights if weights.any() else np.full(columns, WEIGHT_SCALE, np.int64)


def rarities(rows: Words, weights: Weights) -> list[Rarity]:
    """The rarity of each donor's share of the target.

    Args:
        rows: the bits of each donor, shape ``(n, ceil(columns / 64))``.
        weights: the weights of the target's indices, shape ``(columns,)``, not all 0.
    """
    total = int(weights.sum())
    held = np.bitwise_count(rows).sum(axis=1, dtype=np.int64).tolist()
    sums = kernels().weighted_sums(rows, weights).tolist()
    return [
        Rarity(weight / total, weight * weights.size / (total * count) if count else 1.0)
        for weight, count in zip(sums, held, strict=True)
    ]
