"""Agglomerative clustering, by scipy: merge the two nearest clusters, again and again.

The tree is made once. A parameter says where to cut it, or the best silhouette does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.infra.extras import DISTRIBUTION
from app.jobs.service import Progress
from app.kinship.clustering.algorithms.partition_selector import PartitionSelector
from modelkin.errors import MissingExtra

__all__ = ["best_cut", "cluster", "tree"]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Consider = Callable[..., tuple[float, ...]]

STAGE: Final = "agglomerating"
_CUTS_PER_PASS = 32
"""Numbers of clusters that are tried in one pass; the next pass narrows in on the best."""


def cluster(
    distances: Floats, options: Mapping[str, Any], selector: PartitionSelector, progress: Progress
) -> None:
    """Pass the partitions of one or more cuts to the selector.

    Args:
        distances: the distances of all pairs, ``(n, n)``, with n at least 3.
        options: the parameters ``n_clusters`` or ``distance_threshold``, and ``linkage``.
    """
    progress(0, 0, STAGE)
    n = len(distances)
    merges = tree(distances, options.get("linkage", "average"))
    if "n_clusters" in options:
        selector.consider(_cut(merges, n, options["n_clusters"]))
    elif "distance_threshold" in options:
        merged = int(np.count_nonzero(merges[:, 2] < options["distance_threshold"]))
        selector.consider(_cut(merges, n, n - merged), n_clusters=n - merged)
    else:
        best_cut(merges, n, selector.consider, lambda done, total: progress(done, total, STAGE))


def best_cut(
    merges: Floats, n: int, consider: Consider, report: Callable[[int, int], None]
) -> None:
    """Try cuts over the whole tree, then ever closer around the best cut by each score.

    Args:
        merges: the merges that :func:`tree` makes.
        n: the number of models, from 3 on.
        consider: a function of the labels of a cut and ``n_clusters`` that returns its scores.
        report: a function of the number of finished cuts of a pass, and of all its cuts.
    """
    scores: dict[int, tuple[float, ...]] = {}
    which, of = 0, 1
    while which < of:
        low, high = 2, n - 1
        while True:
            counts = np.unique(
                np.geomspace(low, high, _CUTS_PER_PASS).round().astype(np.int64)
            ).tolist()
            fresh = [count for count in counts if count not in scores]
            for done, count in enumerate(fresh):
                report(done, len(fresh))
                scores[count] = consider(_cut(merges, n, count), n_clusters=count)
            if high - low + 1 <= len(counts):
                break
            tried = sorted(scores)
            best = max(tried, key=lambda count: (scores[count][which], -count))
            at = tried.index(best)
            low, high = tried[max(0, at - 1)], tried[min(len(tried) - 1, at + 1)]
        which, of = which + 1, len(scores[2])


def _cut(merges: Floats, n: int, count: int) -> Labels:
    """The labels of ``count`` clusters, by all merges but the last ones."""
    parent = np.arange(2 * n - 1)
    for step, (left, right) in enumerate(merges[: n - count, :2].astype(np.int64).tolist()):
        parent[left] = parent[right] = n + step
    for node in range(2 * n - 2, -1, -1):  # parents have higher numbers than their children
        parent[node] = parent[parent[node]]
    return np.unique(parent[:n], return_inverse=True)[1].astype(np.int64)


def tree(distances: Floats, linkage: str) -> Floats:
    """The merges in order: two clusters, their distance, and how many models they hold."""
    try:
        from scipy.cluster import hierarchy
        from scipy.spatial.distance import squareform
    except ImportError:
        raise MissingExtra("scipy", "clustering", of=DISTRIBUTION) from None
    merges: Floats = hierarchy.linkage(squareform(distances, checks=False), linkage)
    return merges
