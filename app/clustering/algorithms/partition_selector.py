"""Which of several clusterings of the same models is the best: the one with the best silhouette.

Models alone in a cluster count 0, and are nobody's next cluster: else those who belong to nobody
would have to be put somewhere, lest one of many is near to some group by chance. Where even the
best silhouette is no better than what chance would give, there are no groups: everything is one
cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.clustering.clustering import compact
from modelkin.core.clustering.quality import Measured, chance_floor
from modelkin.core.similarity.distances import Distances, blocks

__all__ = ["PartitionSelector", "Mergers", "Partition"]

Labels = npt.NDArray[np.int64]

_LOOKED_AT = 1_000
"""Models that a candidate is measured on, against all: the mean silhouette is known within .01."""
_REMEMBERED = 10_000_000
"""Distances that are kept from one candidate to the next: 80 MB."""
_HARDLY = 0.005
"""What hardly makes a difference between two silhouettes."""
_FEW = 100
"""Models whose distances tell the mean distance."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A clustering, before it has exemplars and ids.

    Attributes:
        labels: 0 to k - 1 by size, -1 for no cluster; shape ``(n,)``.
        chosen: the parameters that decided about it, and were not given.
        silhouette: as it was judged by; None for fewer than two clusters.
    """

    labels: Labels
    chosen: dict[str, Any]
    silhouette: float | None


class _Remembered:
    """The distances of some models to all, looked at again and again.

    Args:
        distances: of n models.
        rows: the models, ascending, that are asked for.
    """

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


class PartitionSelector:
    """Measures candidates and keeps the best; of equal ones the first.

    Args:
        distances: of n models.
        seed: draws the models that candidates are measured on, where n is large.
        error: the standard error of a distance; None where distances are exact.
    """

    def __init__(
        self, distances: Distances, seed: int, error: Callable[[float], float] | None = None
    ) -> None:
        n = len(distances)
        self._rows = np.arange(n)
        if n > 2 * _LOOKED_AT:
            drawn = np.random.default_rng(seed).choice(n, _LOOKED_AT, replace=False)
            self._rows = np.sort(drawn)
        fits = self._rows.size * n <= _REMEMBERED
        self._distances = _Remembered(distances, self._rows) if fits else distances
        self._error = error
        self._best: Partition | None = None

    def consider(self, labels: npt.NDArray[np.integer], **chosen: Any) -> float:
        """Measure a candidate, and keep it if it is the best so far; its silhouette.

        Args:
            labels: any integers, negative ones for no cluster; shape ``(n,)``.
            chosen: the parameters it was made with, as far as they were not given.
        """
        found = compact(labels)
        return self.weigh(found, Measured.on(self._distances, found, self._rows), chosen)

    def mergers(self, labels: npt.NDArray[np.integer]) -> Mergers:
        """What may be considered that merges these clusters, at next to no cost each.

        Args:
            labels: any integers, none of them negative; shape ``(n,)``.
        """
        found = compact(labels)
        return Mergers(self, found, Measured.on(self._distances, found, self._rows))

    def weigh(self, found: Labels, measured: Measured, chosen: dict[str, Any]) -> float:
        """Keep a candidate that is measured already if it is the best so far; its silhouette."""
        silhouette = measured.silhouette(beside_single=False)
        score = -1.0 if silhouette is None else silhouette
        best = self._best
        if best is None or score > (-1.0 if best.silhouette is None else best.silhouette):
            self._best = Partition(compact(found), chosen, silhouette)
        return score

    @property
    def leader(self) -> Partition:
        """The best candidate so far; at least one was considered."""
        assert self._best is not None
        return self._best

    def prefer(self, labels: npt.NDArray[np.integer], **chosen: Any) -> None:
        """Keep a candidate that is no worse than the best one, or hardly.

        Args:
            labels: as of :meth:`consider`.
            chosen: likewise.
        """
        best, found = self.leader, compact(labels)
        measured = Measured.on(self._distances, found, self._rows)
        silhouette = measured.silhouette(beside_single=False)
        if silhouette is not None and silhouette >= (best.silhouette or 0.0) - _HARDLY:
            self._best = Partition(found, chosen, silhouette)

    def verdict(self, *, free: bool) -> Partition:
        """The best candidate; with ``free`` one cluster of all where that is no better than chance.

        At least one was considered.
        """
        if free and (self.leader.silhouette or 0.0) < self._floor():
            everything = np.zeros(len(self._distances), np.int64)
            return Partition(everything, {}, None)
        return self.leader

    def _floor(self) -> float:
        """What the best silhouette may be where there are no groups."""
        mean = float(self._distances.block(self._rows[:_FEW]).mean())
        error = None if self._error is None else self._error(mean)
        return chance_floor(len(self._distances), mean, error)


class Mergers:
    """Candidates that merge the clusters of one partition.

    Args:
        judge: keeps the best.
        labels: of the partition, 0 to k - 1; shape ``(n,)``.
        measured: the partition, as the judge measures.
    """

    def __init__(self, judge: PartitionSelector, labels: Labels, measured: Measured) -> None:
        self._judge = judge
        self._measured = measured
        self.labels = labels

    def consider(self, groups: Labels, **chosen: Any) -> float:
        """As :meth:`PartitionSelector.consider`.

        Args:
            groups: which cluster each of the partition's is a part of, 0 to g - 1; shape ``(k,)``.
            chosen: the parameters it was made with, as far as they were not given.
        """
        merged = self._measured.merged(groups)
        return self._judge.weigh(groups[self.labels], merged, chosen)
