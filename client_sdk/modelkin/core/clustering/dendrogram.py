"""The dendrogram of average linkage: in which order models stand, and where their groups meet.

Every group of the tree is a run of its order. So a cut at some height is known by the boundaries
between neighbours in that order: those of joins above the cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from modelkin.core.clustering.linkage import linkage_tree

__all__ = ["Dendrogram", "Join", "dendrogram"]

_ROUNDING = 1e-9
"""Heights are means, so equal ones may differ by rounding."""


@dataclass(frozen=True, slots=True)
class Join:
    """Two groups that become one.

    Attributes:
        begin, middle, end: places in the order. The one group stands from ``begin`` to before
            ``middle``, the other from there to before ``end``.
        height: their mean distance.
    """

    begin: int
    middle: int
    end: int
    height: float


@dataclass(frozen=True, slots=True)
class Dendrogram:
    """A tree of n models.

    Attributes:
        order: rows of the matrix from the first place to the last, n of them.
        joins: n - 1, the lowest first.
    """

    order: tuple[int, ...]
    joins: tuple[Join, ...]

    def groups(self, height: float) -> list[range]:
        """The places of each group if joins above this height are undone, in order."""
        above = (join.middle for join in self.joins if join.height > height + _ROUNDING)
        ends = [0, *sorted(above), len(self.order)]
        return [range(a, b) for a, b in pairwise(ends) if a < b]

    def height_of(self, count: int) -> float:
        """A height that leaves this many groups, 1 to n: in the middle between two joins."""
        left = len(self.order) - count
        heights = [0.0, *(join.height for join in self.joins)]
        return (
            heights[left] if left + 1 == len(heights) else (heights[left] + heights[left + 1]) / 2
        )


def dendrogram(distances: npt.NDArray[np.float64]) -> Dendrogram:
    """The tree of average linkage.

    Args:
        distances: the distances of all pairs, shape ``(n, n)``, symmetric.
    """
    count = len(distances)
    merges, heights = linkage_tree(distances) if count > 1 else (np.empty((0, 2), np.int64), ())
    members: dict[int, list[int]] = {leaf: [leaf] for leaf in range(count)}
    owner = list(range(count))
    met: list[tuple[int, int, int]] = []
    for one, other in merges.tolist():
        left, right = sorted((members.pop(owner[one]), members.pop(owner[other])), key=min)
        met.append((left[0], right[0], len(left) + len(right)))
        both = left + right
        for leaf in right:
            owner[leaf] = owner[left[0]]
        members[owner[left[0]]] = both
    order = next(iter(members.values()), [])
    place = {leaf: at for at, leaf in enumerate(order)}
    joins = (
        Join(place[left], place[right], place[left] + size, float(height))
        for (left, right, size), height in zip(met, heights, strict=True)
    )
    return Dendrogram(tuple(order), tuple(joins))
