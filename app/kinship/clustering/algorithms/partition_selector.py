"""The selection of the best of several partitions by the silhouette.

Single-model clusters score 0, and do not count as the next cluster of other models. If they did,
unrelated models would be put into groups, since one of many is near a group by chance.

If the number of clusters is left free, the silhouette is measured twice: by S, and by C, which is S
without what all models have in common (``modelkin.core.clustering.centring``). The best partition
by C is taken, unless it is bad by S. If neither is better than chance, all models are one cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.clustering.centring import (
    CentredDistances,
    is_apart,
    is_apart_in_c,
    is_kept,
    least_apart,
    without_strangers,
)
from modelkin.core.clustering.clustering import compact
from modelkin.core.clustering.quality import ClusterDistances, chance_floor
from modelkin.core.similarity.distances import Distances, SignatureDistances, blocks
from modelkin.core.sketching.signature_matrix import match_table

__all__ = ["ClusterUnions", "Partition", "PartitionSelector"]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Fits = Callable[[ClusterDistances, float], bool]

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
        labels: cluster ids 0 to k - 1 by size, -1 for no cluster; shape ``(n,)``.
        chosen: the parameters that the algorithm chose by itself.
        silhouette: the silhouette of the partition; None for fewer than two clusters.
    """

    labels: Labels
    chosen: dict[str, Any]
    silhouette: float | None


class _CachedDistances:
    """The distances of some models to all, in memory.

    Args:
        distances: the distances of n models.
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
    """The distances of signatures in memory, as the numbers of equal values.

    Args:
        distances: the distances of n signatures.
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


def _cache_distances(distances: Distances, rows: npt.NDArray[np.int64]) -> Distances:
    """The distances of some models to all, in memory where they fit."""
    size = rows.size * len(distances)
    if size <= _MAX_CACHED_DISTANCES:
        return _CachedDistances(distances, rows)
    if size <= _MAX_CACHED_MATCHES and isinstance(distances, SignatureDistances):
        return _CachedMatches(distances, rows)
    return distances


class _Scorer:
    """Keeps the best candidate by some distances.

    Args:
        rows: the models whose silhouette is measured.
        fits: a function of a candidate's distances 1 - S and its silhouette here; returns whether
            its clusters are apart in S.
    """

    def __init__(self, distances: Distances, rows: npt.NDArray[np.int64], fits: Fits) -> None:
        self.distances = distances
        self.fits = fits
        self.best: Partition | None = None
        self._rows = rows

    def measure(self, labels: Labels) -> ClusterDistances:
        """The distances of the rows to these clusters."""
        return ClusterDistances.on(self.distances, labels, self._rows)

    def keep(self, labels: Labels, chosen: dict[str, Any], silhouette: float | None) -> None:
        """Keep a candidate if it is the best so far."""
        if self.best is None or _score(silhouette) > _score(self.best.silhouette):
            self.best = Partition(compact(labels), chosen, silhouette)


def _score(silhouette: float | None) -> float:
    return -1.0 if silhouette is None else silhouette


class PartitionSelector:
    """Measures candidates and keeps the best; among equal ones the first.

    Args:
        distances: the distances of n models.
        seed: the seed of the sample on which candidates are measured, if n is large.
        error: the standard error of a distance; None if distances are exact.
        free: whether the number of clusters is left free; if not, any candidate is a valid result.

    Attributes:
        centred: the distances without the mean of the sample, or of all models; None if not free.
    """

    def __init__(
        self,
        distances: Distances,
        seed: int,
        error: Callable[[float], float] | None = None,
        free: bool = False,
    ) -> None:
        n = len(distances)
        rows = np.arange(n)
        if n > 2 * _SAMPLE_SIZE:
            drawn = np.random.default_rng(seed).choice(n, _SAMPLE_SIZE, replace=False)
            rows = np.sort(drawn)
        cached = _cache_distances(distances, rows)
        self._distances = distances
        self._error = error
        self._mean, self._variance = _moments(cached, rows)
        self.centred: CentredDistances | None = None
        if free:
            of_c = CentredDistances.of(cached, rows)
            self.centred = of_c.over(distances)
            self._by_s = _Scorer(cached, rows, self._is_apart)
            self._scorers = [
                self._by_s,
                _Scorer(_cache_distances(of_c, rows), rows, self._is_apart_in_c),
            ]
        else:
            self._by_s = _Scorer(cached, rows, lambda _measured, _silhouette: True)
            self._scorers = [self._by_s]

    def consider(self, labels: npt.NDArray[np.integer], **chosen: Any) -> tuple[float, ...]:
        """Measure a candidate, and keep it if it is the best so far.

        Args:
            labels: cluster ids, any integers, negative for no cluster; shape ``(n,)``.
            chosen: the parameters that the algorithm chose for it.

        Returns:
            The candidate's silhouettes: by S, and by C if that is measured.
        """
        found = compact(labels)
        return self.compare(found, [scorer.measure(found) for scorer in self._scorers], chosen)

    def unions(self, labels: npt.NDArray[np.integer]) -> ClusterUnions:
        """Return the unions of these clusters, which cost next to nothing to measure.

        Args:
            labels: cluster ids, integers that are not negative; shape ``(n,)``.
        """
        found = compact(labels)
        return ClusterUnions(self, found, [scorer.measure(found) for scorer in self._scorers])

    def compare(
        self, found: Labels, measured: Sequence[ClusterDistances], chosen: dict[str, Any]
    ) -> tuple[float, ...]:
        """Compare a measured candidate with the best by S and by C, and keep it if it is better."""
        scores = []
        for scorer, them in zip(self._scorers, measured, strict=True):
            silhouette = them.silhouette(beside_single=False)
            scores.append(_score(silhouette))
            if scorer.fits(measured[0], _score(silhouette)):
                scorer.keep(found, chosen, silhouette)
        return tuple(scores)

    def change(self, changed: Callable[[Labels], Labels | None]) -> None:
        """Change the best candidates so far, unless that costs more than a negligible silhouette.

        Args:
            changed: a function of a candidate's labels that returns new labels, or None for no
                change.
        """
        for scorer in self._scorers:
            best = scorer.best
            labels = None if best is None else changed(best.labels)
            if best is None or labels is None:
                continue
            # Compare by S: C favours clusters of unrelated models, which this change removes.
            found = compact(labels)
            before, after = (
                _score(self._by_s.measure(each).silhouette(beside_single=False))
                for each in (best.labels, found)
            )
            if after >= before - _NEGLIGIBLE_DIFFERENCE:
                silhouette = scorer.measure(found).silhouette(beside_single=False)
                scorer.best = Partition(found, best.chosen, silhouette)

    def result(self) -> Partition:
        """The best candidate, or one cluster of all if the number is free and chance explains it.

        At least one was considered.
        """
        best = self._by_s.best
        if self.centred is not None:
            floor = self._floor()
            in_s = self._without_strangers(self._by_s, self.centred.means, floor)
            in_c = self._without_strangers(self._scorers[-1], self.centred.means, floor)
            best = in_c if in_c is not None and self._is_better(in_c, in_s) else in_s
        return best or Partition(np.zeros(len(self._distances), np.int64), {}, None)

    def _without_strangers(self, scorer: _Scorer, means: Floats, floor: float) -> Partition | None:
        """The best candidate of a scorer, and its silhouette by S; None if chance explains it."""
        best = scorer.best
        if best is None or _score(best.silhouette) < floor:
            return None
        least = least_apart(len(self._distances))
        labels = without_strangers(self._distances, best.labels, means, least)
        measured = self._by_s.measure(labels)
        if not scorer.fits(measured, _score(best.silhouette)):
            return None
        return Partition(labels, best.chosen, measured.silhouette(beside_single=False))

    def _is_better(self, in_c: Partition, in_s: Partition | None) -> bool:
        """Whether the best candidate by C is better than the best by S."""
        if in_s is None:
            return True
        by_c, than = (
            _score(self._scorers[-1].measure(each.labels).silhouette(beside_single=False))
            for each in (in_c, in_s)
        )
        return by_c > than + _NEGLIGIBLE_DIFFERENCE and is_kept(in_c.silhouette, in_s.silhouette)

    def _is_apart(self, measured: ClusterDistances, _silhouette: float) -> bool:
        return is_apart(measured, self._variance)

    def _is_apart_in_c(self, measured: ClusterDistances, silhouette: float) -> bool:
        return is_apart_in_c(measured, self._variance, silhouette)

    def _floor(self) -> float:
        """The best silhouette to expect if there are no groups."""
        error = None if self._error is None else self._error(self._mean)
        return chance_floor(len(self._distances), self._mean, error)


def _moments(distances: Distances, rows: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Return the mean of all distances, and their variance over pairs, estimated from some rows."""
    some = rows[:: -(-rows.size // _MEAN_SAMPLE_SIZE)]
    block = distances.block(some)
    pairs = block[np.arange(len(distances)) != some[:, None]]
    return float(block.mean()), float(pairs.var()) if pairs.size else 0.0


class ClusterUnions:
    """Candidates that merge the clusters of one partition.

    Args:
        selector: the selector that keeps the best.
        labels: cluster ids of the partition, 0 to k - 1; shape ``(n,)``.
        measured: the partition, measured like all candidates.
    """

    def __init__(
        self, selector: PartitionSelector, labels: Labels, measured: Sequence[ClusterDistances]
    ) -> None:
        self._selector = selector
        self._measured = measured
        self.labels = labels

    def consider(self, groups: Labels, **chosen: Any) -> tuple[float, ...]:
        """Measure a merger, and keep it if it is the best; see :meth:`PartitionSelector.consider`.

        Args:
            groups: the merged cluster of each cluster of the partition, 0 to g - 1; shape ``(k,)``.
            chosen: the parameters that the algorithm chose for it.
        """
        merged = [measured.merge(groups) for measured in self._measured]
        return self._selector.compare(groups[self.labels], merged, chosen)
