"""Clusters: their exemplars, the agreement of two clusterings, and lasting ids.

Labels are 0 to k - 1, or -1 for a model in no cluster, one a model. The service has the algorithms
that compute a clustering, from libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from modelkin.core.clustering.assignment import best_pairs
from modelkin.core.clustering.quality import NOISE
from modelkin.core.similarity.distances import Distances

__all__ = [
    "NOISE",
    "agreement",
    "compact",
    "exemplars",
    "lasting_ids",
    "mean_with_newcomer",
    "mean_within",
]

Labels = npt.NDArray[np.int64]

_MAX_COMPARED_MEMBERS = 2000
"""The most members that a member is compared with: for a large cluster a sample is enough."""
_BLOCK_SIZE = 1 << 21
"""Distances in one block: 16 MB."""


def compact(labels: npt.NDArray[np.integer]) -> Labels:
    """The same clusters, numbered 0 to k - 1 by size, the largest first, ties by first member.

    Args:
        labels: any integers, negative ones for no cluster; shape ``(n,)``.
    """
    inside = np.flatnonzero(labels >= 0)
    _, first, own, sizes = np.unique(
        labels[inside], return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first, -sizes))
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    found = np.full(labels.size, NOISE, np.int64)
    found[inside] = rank[own]
    return found


def exemplars(distances: Distances, labels: Labels) -> Labels:
    """The member of each cluster that is nearest to all its members, ties by row: its medoid.

    Args:
        distances: 1 - S of all pairs of n models.
        labels: 0 to k - 1, each taken, or -1; shape ``(n,)``.

    Returns:
        Rows, shape ``(k,)``. For clusters of more than 2,000 members: nearest to a regular sample.
    """
    found = []
    for members in _members(labels):
        others = _some(members, _MAX_COMPARED_MEMBERS)
        step = max(1, _BLOCK_SIZE // others.size)
        sums = [
            distances.block(members[at : at + step], others).sum(axis=1)
            for at in range(0, members.size, step)
        ]
        found.append(int(members[np.concatenate(sums).argmin()]))
    return np.array(found, np.int64)


def mean_within(
    distances: Distances, labels: Labels, *, most: int = _MAX_COMPARED_MEMBERS
) -> npt.NDArray[np.float64]:
    """The mean S of each cluster's members to each other, each to itself included.

    It is the squared length of the cluster's centroid, so the squared distance of a point x to the
    centroid is 1 - 2 mean S(x, members) + this.

    Args:
        distances: 1 - S of all pairs of n models.
        labels: 0 to k - 1, each taken, or -1; shape ``(n,)``.
        most: a larger cluster is represented by a regular sample of at most so many members.

    Returns:
        Shape ``(k,)``.
    """
    found = []
    for members in _members(labels):
        some = _some(members, most)
        if members.size == 1:
            found.append(1.0)
            continue
        step = max(1, _BLOCK_SIZE // some.size)
        total = sum(
            float(distances.block(some[at : at + step], some).sum())
            for at in range(0, some.size, step)
        )
        others = 1.0 - total / (some.size * (some.size - 1))
        found.append((1.0 + (members.size - 1) * others) / members.size)
    return np.array(found, np.float64)


def mean_with_newcomer(within: float, size: int, similarity: float) -> float:
    """What :func:`mean_within` is once one more model has joined a cluster.

    It is exact: the squared length of the running mean ``(size u + x) / (size + 1)``.

    Args:
        within: that of the cluster before.
        size: how many members that is of.
        similarity: the mean S of the newcomer to these members.
    """
    return (size * size * within + 2 * size * similarity + 1.0) / (size + 1) ** 2


def _members(labels: Labels) -> Iterator[Labels]:
    """The rows of each cluster, 0 to k - 1."""
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], np.arange(int(labels.max(initial=NOISE)) + 2))
    for begin, end in pairwise(ends.tolist()):
        yield order[begin:end]


def _some(members: Labels, most: int) -> Labels:
    """Return all members, or a regular sample."""
    return members[:: -(-members.size // most)]


def agreement(one: Labels, other: Labels) -> float:
    """The adjusted Rand index of two clusterings of the same models: 1 if they are the same.

    Random clusterings have about 0. A model in no cluster counts as a cluster of its own.

    Args:
        one: labels, shape ``(n,)``.
        other: labels, shape ``(n,)``.

    Source: Hubert and Arabie 1985.
    """
    n = one.size
    first, second = _apart(one), _apart(other)
    both = np.unique(np.stack([first, second]), axis=1, return_counts=True)[1]
    together = _pairs(both)
    in_first, in_second = _pairs(np.bincount(first)), _pairs(np.bincount(second))
    if in_first == in_second == together:
        return 1.0
    expected = in_first * in_second / (n * (n - 1) / 2)
    return (together - expected) / ((in_first + in_second) / 2 - expected)


def lasting_ids(names: Sequence[str], labels: Labels, previous: Mapping[str, int]) -> Labels:
    """The ids that clusters keep from the previous clustering.

    Old and new clusters are paired one to one so that as many models as possible stay in their
    pair. A cluster without a pair is new, and needs an unused id.

    Args:
        names: the n models, in the order of ``labels``.
        labels: 0 to k - 1, each taken, or -1; shape ``(n,)``.
        previous: the old ids by model; -1 for no cluster.

    Returns:
        The ids of the clusters 0 to k - 1, distinct, or -1 for a new one; shape ``(k,)``.
    """
    before = np.array([previous.get(name, NOISE) for name in names], np.int64)
    stayed = (labels != NOISE) & (before != NOISE)
    pairs, shared = np.unique(
        np.stack([labels[stayed], before[stayed]]), axis=1, return_counts=True
    )
    ids = np.full(int(labels.max(initial=NOISE)) + 1, NOISE, np.int64)
    for label, old in best_pairs(pairs[0], pairs[1], shared.astype(np.int64)):
        ids[label] = old
    return ids


def _apart(labels: Labels) -> Labels:
    """The labels, 0 and up, with a separate cluster for every model that is in none."""
    alone = np.flatnonzero(labels == NOISE)
    found = labels.copy()
    found[alone] = int(labels.max(initial=NOISE)) + 1 + np.arange(alone.size)
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def _pairs(counts: npt.NDArray[np.integer]) -> int:
    return sum(count * (count - 1) // 2 for count in counts.tolist())
