"""The quality of a clustering, computed from the distances 1 − S of its models alone.

S is an inner product: there are points on a unit sphere, one a model, whose products are the S of
all pairs (for supports of one size, their indicator vectors over √K), and 1 − S is half the squared
Euclidean distance of two of them. So clusters have centroids, the means of their points. The
distances of models and centroids follow from the distances of the models, without the points:
Davies-Bouldin and Calinski-Harabasz use that. The silhouette takes 1 − S as it is. If S is
estimated, so are the figures.

Models in no cluster have the label -1.

Sources: Rousseeuw 1987 (silhouette); Davies and Bouldin 1979; Calinski and Harabasz 1974; that the
Sorensen-Dice similarity is positive definite: Gower and Legendre 1986.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.similarity.distances import Distances, blocks

__all__ = ["NOISE", "ClusterQuality", "ClusterDistances", "chance_floor", "quality"]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]
Report = Callable[[int, int], None]

NOISE = -1
"""The label of a model that is in no cluster."""

_CHANCE_SILHOUETTE = 0.05
"""The largest silhouette that clusters of unrelated supports have, however small; measured."""
_SILHOUETTE_PER_ERROR = 1.2
"""The largest silhouette of unrelated signatures, in standard errors over the mean distance."""
_FEW_MODELS, _FEW_MODELS_FACTOR = 20, 2.0
"""The number of models below which chance gives up to so many times as much."""
_ROUNDING_DISTANCE = 1e-12
"""Distances below this are rounding: equal centroids, or clusters without a spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQuality:
    """Three figures of a clustering; each None for too few or too many clusters.

    Attributes:
        silhouette: -1 to 1, the mean over all models of how much nearer their own cluster is than
            the next one; models alone in their cluster, or in none, count 0.
        davies_bouldin: 0 is best; it favours degenerate clusters of one model, so no decision uses
            it.
        calinski_harabasz: the variance between clusters over the variance within; more is better.
        models: how many models were measured: all, or a sample of them.
    """

    silhouette: float | None = None
    davies_bouldin: float | None = None
    calinski_harabasz: float | None = None
    models: int


def quality(
    distances: Distances, labels: Labels, *, rows: Rows | None = None, report: Report | None = None
) -> ClusterQuality:
    """The three figures of one clustering.

    Args:
        distances: 1 - S of all pairs of n models.
        labels: 0 to k - 1, each taken, or -1 for no cluster; shape ``(n,)``.
        rows: the models to measure, with their distances to all; all models by default.
        report: called with the number of rows that are done, and of all rows.
    """
    measured = ClusterDistances.on(distances, labels, rows, report)
    return ClusterQuality(
        silhouette=measured.silhouette(),
        davies_bouldin=measured.davies_bouldin(),
        calinski_harabasz=measured.calinski_harabasz(),
        models=measured.total,
    )


def chance_floor(models: int, mean: float, error: float | None) -> float:
    """The best silhouette that chance gives among many clusterings of ungrouped models.

    Args:
        models: how many models.
        mean: the mean distance of all pairs, 0 to 1.
        error: the standard error of a distance of that size; None where distances are exact.
    """
    factor = _FEW_MODELS_FACTOR if models < _FEW_MODELS else 1.0
    if error is None or mean == 0.0:
        return factor * _CHANCE_SILHOUETTE
    return factor * max(_CHANCE_SILHOUETTE, _SILHOUETTE_PER_ERROR * error / mean)


@dataclass(frozen=True, slots=True)
class ClusterDistances:
    """The distances of some models of a clustering to each of its clusters.

    Attributes:
        sums: the summed distances of each measured model to the models of each cluster, ``(r, k)``.
        own: the clusters of the measured models, ``(r,)``; without the models in no cluster.
        sizes: how many models each cluster has, ``(k,)``.
        total: how many models were measured, those in no cluster included.
    """

    sums: Floats
    own: Labels
    sizes: npt.NDArray[np.int64]
    total: int

    @classmethod
    def on(
        cls,
        distances: Distances,
        labels: Labels,
        rows: Rows | None = None,
        report: Report | None = None,
    ) -> ClusterDistances:
        """Measure some models, or all; arguments as in :func:`quality`."""
        rows = np.arange(labels.size) if rows is None else rows
        sizes = np.bincount(labels[labels != NOISE])
        inside = rows[labels[rows] != NOISE]
        sums = _sums(distances, labels, inside, sizes, report)
        return cls(sums, labels[inside], sizes, rows.size)

    def merge(self, groups: Labels) -> ClusterDistances:
        """Merge clusters of the same models, from the sums alone.

        Args:
            groups: the new cluster of each cluster, 0 to g - 1, each taken; ``(k,)``.
        """
        order = np.argsort(groups, kind="stable")
        counts = np.bincount(groups)
        starts = np.cumsum(counts) - counts
        return ClusterDistances(
            sums=np.add.reduceat(self.sums.take(order, axis=1), starts, axis=1),
            own=groups[self.own],
            sizes=np.add.reduceat(self.sizes[order], starts),
            total=self.total,
        )

    def _drop_unmeasured(self) -> ClusterDistances:
        """Leave out the clusters of which no model was measured."""
        kept, own = np.unique(self.own, return_inverse=True)
        return ClusterDistances(self.sums[:, kept], own, self.sizes[kept], self.total)

    @property
    def to_own(self) -> Floats:
        """The sum of each model's distances to the models of its own cluster, ``(r,)``."""
        return self.sums[np.arange(self.own.size), self.own]

    def between(self) -> Floats:
        """The mean distances from the measured models of each cluster to each cluster, ``(k, k)``.

        Every cluster needs a measured model.
        """
        means = self.sums / self.sizes
        order = np.argsort(self.own, kind="stable")
        counts = np.bincount(self.own)
        sums = np.add.reduceat(means[order], np.cumsum(counts) - counts, axis=0)
        found: Floats = sums / counts[:, None]
        return found

    def silhouette(self, *, beside_single: bool = True) -> float | None:
        """See :class:`ClusterQuality`.

        Args:
            beside_single: whether the next cluster may be a single model. If there are many of
                these, the nearest one is near by chance.
        """
        if self.sizes.size < 2:
            return None
        kept = self.sizes[self.own] > 1
        nearest = self.to_own[kept] / (self.sizes[self.own[kept]] - 1)
        means = self.sums[kept] / self.sizes
        means[np.arange(len(means)), self.own[kept]] = np.inf
        several = self.sizes > 1
        if not beside_single and np.count_nonzero(several) > 1:
            means = means[:, several]
        beside: Floats = means.min(axis=1)
        larger = np.maximum(nearest, beside)
        scores = np.divide(beside - nearest, larger, out=np.zeros_like(larger), where=larger > 0)
        return float(scores.sum() / max(1, self.total))

    def davies_bouldin(self) -> float | None:
        """See :class:`ClusterQuality`."""
        seen = self._drop_unmeasured()
        if seen.sizes.size < 2:
            return None
        own, between = seen.own, seen.between()
        within = np.diag(between)
        from_centroid = seen.to_own / seen.sizes[own] - within[own] / 2
        scatter = np.bincount(own, np.sqrt(np.maximum(from_centroid, 0.0))) / np.bincount(own)
        squared = (between + between.T) / 2 - (within[:, None] + within) / 2
        apart = np.sqrt(np.maximum(squared, 0.0))
        np.fill_diagonal(apart, 0.0)
        ratios = np.divide(
            scatter[:, None] + scatter,
            apart,
            out=np.zeros_like(apart),
            where=apart > _ROUNDING_DISTANCE,
        )
        return float(ratios.max(axis=1).mean())

    def calinski_harabasz(self) -> float | None:
        """See :class:`ClusterQuality`."""
        n, k = int(self.sizes.sum()), self.sizes.size
        if not 2 <= k < n or self.own.size == 0:
            return None
        within = n * float(np.mean(self.to_own / self.sizes[self.own])) / 2
        total = float(self.sums.sum()) / self.own.size / 2
        if within <= _ROUNDING_DISTANCE * n:
            return None
        return max(0.0, (total - within) / (k - 1)) / (within / (n - k))


def _sums(
    distances: Distances,
    labels: Labels,
    rows: Rows,
    sizes: npt.NDArray[np.int64],
    report: Report | None,
) -> Floats:
    """The sum of the distances of some models to all models of each cluster, ``(r, k)``."""
    order = np.argsort(labels, kind="stable")[labels.size - int(sizes.sum()) :]
    starts = np.cumsum(sizes) - sizes
    sums = np.empty((rows.size, sizes.size))
    done = 0
    for some, block in blocks(distances, rows):
        # An index array would make columns contiguous, of which sums take five times as long.
        sums[done : done + some.size] = np.add.reduceat(block.take(order, axis=1), starts, axis=1)
        done += some.size
        if report is not None:
            report(done, rows.size)
    return sums
