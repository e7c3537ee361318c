"""Agglomerative clustering, by scipy: the two nearest clusters become one, again and again.

The tree is made once. Where it is cut is given, or it is cut where the silhouette is best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.clustering.algorithms.partition_selector import PartitionSelector
from app.jobs.service import Progress
from modelkin.errors import MissingExtra

__all__ = ["best_cut", "cluster", "tree"]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Consider = Callable[..., float]

STAGE: Final = "agglomerating"
_CUTS = 32
"""Numbers of clusters that are tried at a time, before those around the best one are."""


def cluster(
    distances: Floats, options: Mapping[str, Any], judge: PartitionSelector, progress: Progress
) -> None:
    """Let the judge consider what it finds.

    Args:
        distances: of all pairs, ``(n, n)``, n from 3 on.
        options: ``n_clusters`` or ``distance_threshold``; ``linkage``.
    """
    progress(0, 0, STAGE)
    n = len(distances)
    merges = tree(distances, options.get("linkage", "average"))
    if "n_clusters" in options:
        judge.consider(_cut(merges, n, options["n_clusters"]))
    elif "distance_threshold" in options:
        merged = int(np.count_nonzero(merges[:, 2] < options["distance_threshold"]))
        judge.consider(_cut(merges, n, n - merged), n_clusters=n - merged)
    else:
        best_cut(merges, n, judge.consider, lambda done, total: progress(done, total, STAGE))


def best_cut(
    merges: Floats, n: int, consider: Consider, report: Callable[[int, int], None]
) -> None:
    """Have cuts of a tree considered all over, then ever closer around the best one.

    Args:
        merges: as :func:`tree` makes them.
        n: of how many, from 3 on.
        consider: told the labels of a cut and ``n_clusters``, answers how good that is.
        report: told how many of the next cuts are done, and how many there are.
    """
    low, high = 2, n - 1
    scores: dict[int, float] = {}
    while True:
        counts = np.unique(np.geomspace(low, high, _CUTS).round().astype(np.int64)).tolist()
        fresh = [count for count in counts if count not in scores]
        for done, count in enumerate(fresh):
            report(done, len(fresh))
            scores[count] = consider(_cut(merges, n, count), n_clusters=count)
        if high - low + 1 <= len(counts):
            return
        tried = sorted(scores)
        at = tried.index(max(tried, key=lambda count: (scores[count], -count)))
        low, high = tried[max(0, at - 1)], tried[min(len(tried) - 1, at + 1)]


def _cut(merges: Floats, n: int, count: int) -> Labels:
    """The labels of so many clusters: all merges but the last ones are done."""
    parent = np.arange(2 * n - 1)
    for step, (left, right) in enumerate(merges[: n - count, :2].astype(np.int64).tolist()):
        parent[left] = parent[right] = n + step
    for node in range(2 * n - 2, -1, -1):  # parents stand behind their children
        parent[node] = parent[parent[node]]
    return np.unique(parent[:n], return_inverse=True)[1].astype(np.int64)


def tree(distances: Floats, linkage: str) -> Floats:
    """The merges in order: two clusters, how far they were apart, and how many models they hold."""
    try:
        from scipy.cluster import hierarchy
        from scipy.spatial.distance import squareform
    except ImportError:
        raise MissingExtra("scipy", "clustering", of=".") from None
    merges: Floats = hierarchy.linkage(squareform(distances, checks=False), linkage)
    return merges
