"""How rare an index is in a space, and what a donor's share of a target is worth by that.

The weight of an index that ``c`` of ``n`` supports hold is ``log((n + 1) / (c + 1))``, the inverse
document frequency of text retrieval: 0 where everybody holds it. Weights are integers, multiples of
2^-20, so that sums do not depend on their order. It never chooses whom to count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels

__all__ = ["Rarity", "index_weights", "rarities"]

Words = npt.NDArray[np.uint64]
Weights = npt.NDArray[np.int64]

SCALE = 1 << 20


@dataclass(frozen=True, slots=True)
class Rarity:
    """What one donor holds of a target, by rarity.

    Attributes:
        share: of the weight of all indices of the target, 0 to 1; the paper's S for supports of
            equal size where all weigh the same.
        gain: how rare the shared indices are on average, against all of the target's: above 1 they
            are rarer. 1 where nothing is shared.
    """

    share: float
    gain: float


def index_weights(holders: Words, columns: int) -> Weights:
    """The weight of each index of a target, by how many of some supports hold it.

    Args:
        holders: what each of these supports holds, shape ``(n, ceil(columns / 64))``; possibly
            none.
        columns: how many indices there are.

    Returns:
        Shape ``(columns,)``, not all 0: where every support holds every index, all weigh the same.
    """
    n = holders.shape[0]
    table = np.array([round(SCALE * math.log((n + 1) / (c + 1))) for c in range(n + 1)], np.int64)
    weights: Weights = table[kernels().column_counts(holders, columns)]
    return weights if weights.any() else np.full(columns, SCALE, np.int64)


def rarities(rows: Words, weights: Weights) -> list[Rarity]:
    """What each donor's share of the target weighs.

    Args:
        rows: what each donor holds, shape ``(n, ceil(columns / 64))``.
        weights: of the target's indices, shape ``(columns,)``, not all 0.
    """
    total = int(weights.sum())
    held = np.bitwise_count(rows).sum(axis=1, dtype=np.int64).tolist()
    sums = kernels().weighted_sums(rows, weights).tolist()
    return [
        Rarity(weight / total, weight * weights.size / (total * count) if count else 1.0)
        for weight, count in zip(sums, held, strict=True)
    ]
