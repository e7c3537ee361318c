"""``Centroids``: the mean of each cluster of data subspaces, to which newcomers are compared.

S of subspaces is an inner product of unit vectors, so a cluster has a mean, and the squared
distance to it is ``1 - 2 mean S(x, members) + mean S(members, members)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.clustering.clustering import NOISE, mean_within
from modelkin.core.similarity.distances import MatrixDistances
from modelkin.core.subspaces.affinity import Stack, affinities, scaled_columns
from modelkin.core.subspaces.subspace import Compare, Subspace

__all__ = ["Centroids", "Place", "usual_comparison"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster of a newcomer.

    Attributes:
        cluster: the cluster; -1 where the mean of all is as near as the nearest centroid.
        nearest: the cluster of that centroid; -1 where the newcomer shares nothing with any member.
        similarity: S to each member, shape ``(n,)``.
        compare: the comparison that it was found by.
        margin: how much nearer the centroid is than the next, 0 to 1.
    """

    cluster: int
    nearest: int
    similarity: Floats
    compare: Compare
    margin: float


class Centroids:
    """The mean of each cluster, to which newcomers are compared.

    Args:
        held: the n clustered subspaces.
        clusters: the cluster of each subspace, ``(n,)``.
        compare: the comparison that the clusters were made by.
    """

    def __init__(
        self, held: Sequence[Subspace], clusters: npt.NDArray[np.int64], compare: Compare
    ) -> None:
        self.compare: Compare = compare
        self._ids, self._labels = np.unique(clusters, return_inverse=True)
        self._held = held
        self._members: dict[Compare, _Members] = {}

    def place(self, newcomer: Subspace) -> Place:
        """The cluster of the nearest centroid.

        A newcomer without a class in common with any node is compared by all its samples.
        """
        ways: tuple[Compare, ...] = (self.compare,)
        if self.compare == "classes":
            ways = ("classes", "whole")
        for compare in ways:
            members = self._of(compare)
            similarity = members.stack.query(scaled_columns(newcomer, compare))
            if similarity.any():
                return self._nearest(similarity, members, compare)
        return Place(NOISE, NOISE, np.zeros(len(self._held)), self.compare, 0.0)

    def _of(self, compare: Compare) -> _Members:
        if compare not in self._members:
            self._members[compare] = _Members.of(self._held, self._labels, compare)
        return self._members[compare]

    def _nearest(self, similarity: Floats, members: _Members, compare: Compare) -> Place:
        sizes = np.bincount(self._labels)
        squared = 1.0 - 2.0 * np.bincount(self._labels, similarity) / sizes + members.within
        centre = 1.0 - 2.0 * float(similarity.mean()) + members.overall
        best = int(squared.argmin())
        nearest = int(self._ids[best])
        if squared.size == 1:
            return Place(nearest, nearest, similarity, compare, 1.0)
        if squared[best] >= centre:
            return Place(NOISE, nearest, similarity, compare, 0.0)
        following = float(np.delete(squared, best).min())
        margin = 1.0 - max(0.0, float(squared[best])) / following if following > 0 else 0.0
        return Place(nearest, nearest, similarity, compare, margin)


@dataclass(frozen=True, slots=True)
class _Members:
    """The clustered subspaces under one comparison.

    Attributes:
        stack: the subspaces, in the form that is compared.
        within: the squared length of each centroid, ``(k,)``.
        overall: the squared length of the mean of all.
    """

    stack: Stack
    within: Floats
    overall: float

    @classmethod
    def of(
        cls, held: Sequence[Subspace], labels: npt.NDArray[np.int64], compare: Compare
    ) -> _Members:
        distances = MatrixDistances(affinities(held, compare))
        return cls(
            Stack.of(held, compare),
            mean_within(distances, labels),
            float(mean_within(distances, np.zeros_like(labels))[0]),
        )


def usual_comparison(held: Sequence[Subspace]) -> Compare:
    """The usual comparison: by classes if most subspaces have some, else by all samples."""
    return "classes" if 2 * sum(bool(own.labels) for own in held) > len(held) else "whole"
