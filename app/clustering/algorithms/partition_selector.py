"""The selection of the best of several partitions: the one with the best silhouette.

Single-model clusters score 0, and do not count as the next cluster of other models. Otherwise
unrelated models would have to join a group, lest one of many is near a group by chance. If even
the best silhouette is no better than chance, there are no groups: all models are one cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.clustering.clustering import compact
from modelkin.core.clustering.quality import ClusterDistances, chance_floor
from modelkin.core.similarity.distances import Distances, SignatureDistances, blocks
from modelkin.core.sketching.signature_matrix import match_table

__all__ = ["PartitionSelector", "Mergers", "Partition"]

Labels = npt.NDArray[np.int64]

_SAMPLE_SIZE = 1_000
"""Models whose silhouette is measured, against all: its mean is known within .01."""
_MAX_CACHED_DISTANCES = 10_000_000
"""Distances that are kept from one candidate to the next: 80 MB."""
_MAX_CACHED_MATCHES = 100_000_000
"""Counts of equal values that are kept instead, for signatures: 200 MB."""
_NEGLIGIBLE_DIFFERENCE = 0.005
"""A negligible difference between two silhouettes."""
_MEAN_SAMPLE_SIZE = 100
"""Models whose distances estimate the mean distance."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A clustering, before it has exemplars and ids.

    Attributes:
        labels: 0 to k - 1 by size, -1 for no cluster; shape ``(n,)``.
        chosen: the parameters that the algorithm chose by itself.
        silhouette: its score; None for fewer than two clusters.
    """

    labels: Labels
    chosen: dict[str, Any]
    silhouette: float | None


class _CachedDistances:
    """The distances of some models to all, in memory.

    Args:
        distances: of n models.
        rows: the models, ascending.
    """

    cost = 1

    def __init__(self, distances: Distances, rows: npt.NDArray[np.int64]) -> None:
        self._rows = rows
        self._block = np.empty((rows.size, len(distances)))
        done = 0
        for some, block in blocks(distances, rows):
            self._block[done : done + some.size] = block
            done += some.size

    def __len__(self) -> int:
        return self._block.shape[1]

    def block(
        self, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.float64]:
        """See :class:`Distances`."""
        found = self._block[np.searchsorted(self._rows, rows)]
        return found if columns is None else found[:, columns]


class _CachedMatches:
    """The same for signatures: how many values agree, of which distances follow.

    Args:
        distances: of n signatures.
        rows: the models, ascending.
    """

    cost = 1

    def __init__(self, distances: SignatureDistances, rows: npt.NDArray[np.int64]) -> None:
        self._rows = rows
        self._matches = match_table(distances.values[rows], distances.values)
        self._of_matches = distances.of_matches

    def __len__(self) -> int:
        return len(self._matches.T)

    def block(
        self, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.float64]:
        """See :class:`Distances`."""
        found = self._matches[np.searchsorted(self._rows, rows)]
        return self._of_matches[found if columns is None else found[:, columns]]


def _cached(distances: Distances, rows: npt.NDArray[np.int64]) -> Distances:
    """The distances of some models to all, in memory where they fit."""
    size = rows.size * len(distances)
    if size <= _MAX_CACHED_DISTANCES:
        return _CachedDistances(distances, rows)
    if size <= _MAX_CACHED_MATCHES and isinstance(distances, SignatureDistances):
        return _CachedMatches(distances, rows)
    return distances


class PartitionSelector:
    """Measures candidates and keeps the best; of equal ones the first.

    Args:
        distances: of n models.
        seed: draws the sample on which candidates are measured, if n is large.
        error: the standard error of a distance; None if distances are exact.
    """

    def __init__(
        self, distances: Distances, seed: int, error: Callable[[float], float] | None = None
    ) -> None:
        n = len(distances)
        self._rows = np.arange(n)
        if n > 2 * _SAMPLE_SIZE:
            drawn = np.random.default_rng(seed).choice(n, _SAMPLE_SIZE, replace=False)
            self._rows = np.sort(drawn)
        self._distances = _cached(distances, self._rows)
        self._error = error
        self._best: Partition | None = None

    def consider(self, labels: npt.NDArray[np.integer], **chosen: Any) -> float:
        """Measure a candidate, keep it if it is the best so far, and return its silhouette.

        Args:
            labels: any integers, negative ones for no cluster; shape ``(n,)``.
            chosen: the parameters that the algorithm chose for it.
        """
        found = compact(labels)
        return self.score(found, ClusterDistances.on(self._distances, found, self._rows), chosen)

    def mergers(self, labels: npt.NDArray[np.integer]) -> Mergers:
        """The mergers of these clusters, which cost next to nothing to measure.

        Args:
            labels: any integers, not negative; shape ``(n,)``.
        """
        found = compact(labels)
        return Mergers(self, found, ClusterDistances.on(self._distances, found, self._rows))

    def score(self, found: Labels, measured: ClusterDistances, chosen: dict[str, Any]) -> float:
        """Keep a measured candidate if it is the best so far; return its silhouette."""
        silhouette = measured.silhouette(beside_single=False)
        score = -1.0 if silhouette is None else silhouette
        best = self._best
        if best is None or score > (-1.0 if best.silhouette is None else best.silhouette):
            self._best = Partition(compact(found), chosen, silhouette)
        return score

    @property
    def best(self) -> Partition:
        """The best candidate so far; at least one was considered."""
        assert self._best is not None
        return self._best

    def prefer(self, labels: npt.NDArray[np.integer], **chosen: Any) -> None:
        """Keep a candidate unless it is worse than the best one by more than a negligible amount.

        Args:
            labels: as of :meth:`consider`.
            chosen: likewise.
        """
        best, found = self.best, compact(labels)
        measured = ClusterDistances.on(self._distances, found, self._rows)
        silhouette = measured.silhouette(beside_single=False)
        if (
            silhouette is not None
            and silhouette >= (best.silhouette or 0.0) - _NEGLIGIBLE_DIFFERENCE
        ):
            self._best = Partition(found, chosen, silhouette)

    def result(self, *, free: bool) -> Partition:
        """The best candidate; with ``free`` one cluster of all if that is no better than chance.

        At least one was considered.
        """
        if free and (self.best.silhouette or 0.0) < self._floor():
            everything = np.zeros(len(self._distances), np.int64)
            return Partition(everything, {}, None)
        return self.best

    def _floor(self) -> float:
        """The best silhouette to expect if there are no groups."""
        mean = float(self._distances.block(self._rows[:_MEAN_SAMPLE_SIZE]).mean())
        error = None if self._error is None else self._error(mean)
        return chance_floor(len(self._distances), mean, error)


class Mergers:
    """Candidates that merge the clusters of one partition.

    Args:
        selector: keeps the best.
        labels: of the partition, 0 to k - 1; shape ``(n,)``.
        measured: the partition, measured like all candidates.
    """

    def __init__(
        self, selector: PartitionSelector, labels: Labels, measured: ClusterDistances
    ) -> None:
        self._selector = selector
        self._measured = measured
        self.labels = labels

    def consider(self, groups: Labels, **chosen: Any) -> float:
        """As :meth:`PartitionSelector.consider`.

        Args:
            groups: the merged cluster of each cluster of the partition, 0 to g - 1; shape ``(k,)``.
            chosen: the parameters that the algorithm chose for it.
        """
        merged = self._measured.merged(groups)
        return self._selector.score(groups[self.labels], merged, chosen)
