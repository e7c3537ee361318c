"""Similarities without the mean of all models, by which the number of groups is chosen.

All models of a space have something in common, and some groups have more in common than others.
The silhouette of S then prefers a few large groups to those that they consist of. S is an inner
product of points (see ``quality``), so the mean of the points can be taken out. C is the cosine of
what is left of two models, and 0 where that is negative: all that are less similar than usual are
equally far.

In C, a group that makes most of the mean has little left, and small differences look large. So
groups that are found in C also have to be apart in S.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.clustering.clustering import NOISE, compact, mean_within
from modelkin.core.clustering.quality import ClusterDistances
from modelkin.core.similarity.distances import Distances, MatrixDistances, blocks

__all__ = [
    "SEPARATION",
    "CentredDistances",
    "apart",
    "centre",
    "is_apart",
    "is_apart_in_c",
    "is_kept",
    "least_apart",
    "without_strangers",
]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]

SEPARATION: Final = 0.1
"""The least difference of mean S within groups and between them.

A silhouette is relative: nearly identical models have a good one for tiny differences.
"""
_CENTRED_SHARE = 0.3
"""The share of the separation that groups need which are found in C.

It is .03: random groups of clients with alike data reach .019, swapped labels .048 and more.
"""
_FEW_MODELS = 20
"""The number of models below which groups found in C need the whole separation."""
_CLEARLY_APART = 1.35
"""How many times as much as by chance groups are apart that need no other evidence.

Groups of clients whose labels differ by chance reach 1.1.
"""
_CHANCE_SILHOUETTE = 0.12
"""The least silhouette in C of groups that are not clearly apart: labels by chance reach .10."""
_LEAST_SHARE = 0.5
"""The least share of the best silhouette in S that groups found in C keep.

Swapped labels, styles and rotations of images keep .69 and more, pieces of one large group .2.
"""
_COMPARED_MEMBERS = 50
"""Members of a cluster whose similarity to each other is compared with that to others."""
_LEAST_REST = 1e-12
"""The squared length that rounding leaves of a model which is the mean itself."""


def centre(similarity: Floats) -> Floats:
    """Return C of all pairs, 0 to 1, with ones on the diagonal.

    Args:
        similarity: S of all pairs, shape ``(n, n)``, symmetric, n from 1 on.
    """
    distances = CentredDistances.of(MatrixDistances(np.asarray(similarity, np.float64)))
    found: Floats = 1.0 - distances.matrix()
    return found


def apart(measured: ClusterDistances) -> float:
    """Mean S of pairs within clusters minus that of pairs between them; 0 where there are none.

    Args:
        measured: the distances 1 - S of models to clusters; models in no cluster do not count.
    """
    own = measured.sizes[measured.own]
    within, between = int((own - 1).sum()), int((measured.sizes.sum() - own).sum())
    if not within or not between:
        return 0.0
    inside = float(measured.to_own.sum())
    return (float(measured.sums.sum()) - inside) / between - inside / within


def is_apart(measured: ClusterDistances, variance: float, separation: float = SEPARATION) -> bool:
    """Whether groups that are found in S differ enough, and by more than chance makes them.

    Args:
        measured: the distances 1 - S of models to clusters.
        variance: how much S varies over all pairs of models, 0 or more.
        separation: the least difference of mean S within groups and between them.
    """
    return 0.0 < apart(measured) >= separation and _over_chance(measured, variance) >= 1.0


def is_apart_in_c(
    measured: ClusterDistances,
    variance: float,
    silhouette: float,
    separation: float = SEPARATION,
) -> bool:
    """Whether groups that are found in C differ enough; less is asked of these.

    Args:
        measured: the distances 1 - S of models to clusters.
        variance: how much S varies over all pairs of models, 0 or more.
        silhouette: the mean silhouette of the groups in C, -1 to 1.
        separation: as of groups that are found in S.
    """
    if not 0.0 < apart(measured) >= least_apart(int(measured.sizes.sum()), separation):
        return False
    least = 1.0 if silhouette >= _CHANCE_SILHOUETTE else _CLEARLY_APART
    return _over_chance(measured, variance) >= least


def least_apart(models: int, separation: float = SEPARATION) -> float:
    """The least difference of mean S within groups that are found in C and between them.

    Args:
        models: how many there are.
        separation: the least difference of groups that are found in S.
    """
    return separation if models < _FEW_MODELS else separation * _CENTRED_SHARE


def _over_chance(measured: ClusterDistances, variance: float) -> float:
    """How many times as much as by chance groups are apart; infinity for few models.

    S between unrelated models varies, and the algorithms put together what is nearest. The fewer
    kin a model has, the nearer they are by chance.
    """
    models = int(measured.sizes.sum())
    kin = measured.sizes[measured.own] - 1
    if models < _FEW_MODELS or not kin.any():
        return math.inf
    difference = apart(measured)
    share = float(kin.sum()) / (kin.size * (models - 1))
    spread = math.sqrt(max(0.0, variance - share * (1.0 - share) * difference**2))
    # The most that the mean of so many normal values is above the mean of all, chosen among these.
    chance = 2.0 * spread * math.sqrt(math.log(models) / float(kin[kin > 0].mean()))
    return difference / chance if chance > 0.0 else math.inf


def is_kept(in_s: float | None, best_in_s: float | None) -> bool:
    """Whether the groups that are best in C are better than those that are best in S.

    They are unless they lose half of the silhouette in S: then they are pieces of a group that
    makes most of the mean.

    Args:
        in_s: the silhouette in S of the groups that are best in C; None for one group.
        best_in_s: the silhouette in S of the groups that are best in S; None for one group.
    """
    return in_s is not None and (best_in_s is None or in_s >= _LEAST_SHARE * best_in_s)


def without_strangers(distances: Distances, labels: Labels, means: Floats, least: float) -> Labels:
    """The clusters without those whose members are no more similar to each other than to others.

    In C, models without kin look alike: all are where the groups are not. The members of such a
    cluster are in none if any model is, or else each is alone.

    Args:
        distances: 1 - S of n models.
        labels: 0 to k - 1, each taken, or -1; shape ``(n,)``.
        means: the mean S of each model to all, itself included; shape ``(n,)``.
        least: the least difference of the mean S of members and that of members and others.
    """
    inside = labels != NOISE
    n, sizes = labels.size, np.bincount(labels[inside])
    several = np.flatnonzero((sizes > 1) & (sizes < n))
    size = sizes[several]
    within = mean_within(distances, labels, most=_COMPARED_MEMBERS)[several]
    overall = np.bincount(labels[inside], means[inside])[several] / size
    between = (n * overall - size * within) / (n - size)
    pairs = (size * within - 1.0) / (size - 1)
    parted = np.isin(labels, several[pairs - between < least])
    found = labels.copy()
    found[parted] = n + np.flatnonzero(parted) if inside.all() else NOISE
    return compact(found)


class CentredDistances:
    """The distances 1 - C of all pairs.

    Args:
        distances: 1 - S of n models.
        means: the mean S of each model to those whose mean is taken out; shape ``(n,)``.
        level: the mean S of these to each other, each to itself included.

    Attributes:
        means: the argument ``means``.
    """

    def __init__(self, distances: Distances, means: Floats, level: float) -> None:
        self._distances = distances
        self._level = level
        self.means = means
        rest = 1.0 - 2.0 * means + level
        kept = rest > _LEAST_REST
        self._scale = np.zeros(means.size)
        self._scale[kept] = 1.0 / np.sqrt(rest[kept])

    @classmethod
    def of(cls, distances: Distances, rows: Rows | None = None) -> CentredDistances:
        """Take out the mean of some models, or of all.

        Args:
            distances: 1 - S of n models.
            rows: a sample of them; all by default.
        """
        rows = np.arange(len(distances)) if rows is None else rows
        sums = np.zeros(len(distances))
        for _, block in blocks(distances, rows):
            sums += block.sum(axis=0)
        means = 1.0 - sums / rows.size
        return cls(distances, means, float(means[rows].mean()))

    def over(self, distances: Distances) -> CentredDistances:
        """The same distances, computed from another source of the same 1 - S."""
        return CentredDistances(distances, self.means, self._level)

    @property
    def cost(self) -> int:
        """See :class:`Distances`."""
        return self._distances.cost

    def __len__(self) -> int:
        return self.means.size

    def block(self, rows: Rows, columns: Rows | None = None) -> Floats:
        """See :class:`Distances`."""
        others = np.arange(len(self)) if columns is None else columns
        # S - mean - mean' + level is the product of what is left of two models.
        found = (1.0 + self._level - self.means[rows])[:, None] - self.means[others]
        found -= self._distances.block(rows, columns)
        found *= self._scale[rows, None]
        found *= self._scale[others]
        np.subtract(1.0, found, out=found)
        np.clip(found, 0.0, 1.0, out=found)
        if columns is None:
            found[np.arange(rows.size), rows] = 0.0
        else:
            found[rows[:, None] == columns] = 0.0
        return found

    def matrix(self) -> Floats:
        """All distances, shape ``(n, n)``."""
        n = len(self)
        found = np.empty((n, n))
        for some, block in blocks(self, np.arange(n)):
            found[some] = block
        return found
