"""Groups of a few hundred models, by average linkage cut where the silhouette is best.

The silhouette is that of C, similarities without the mean of all (``centring``), if groups show
there, or else that of S.

For programs without a service and without a clustering library, such as the server of a federation:
it needs numpy alone, and n² memory and time. The service has other algorithms for more models.

Sources: Sokal and Michener 1958 (average linkage); Murtagh 1983 (nearest-neighbour chains); Lance
and Williams 1967 (the update of distances); Rousseeuw 1987 (silhouette).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from modelkin.core.clustering.centring import (
    SEPARATION,
    CentredDistances,
    is_apart,
    is_apart_in_c,
    is_kept,
)
from modelkin.core.clustering.clustering import compact
from modelkin.core.clustering.quality import ClusterDistances, chance_floor
from modelkin.core.estimators import standard_error
from modelkin.core.similarity.distances import MatrixDistances
from modelkin.errors import InvalidParameter

__all__ = ["DEFAULT_SEPARATION", "Division", "average_linkage", "cut", "groups", "linkage_tree"]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

_Groups: TypeAlias = tuple[Labels, float | None]

_MAX_CUTS = 48
"""How many numbers of clusters are tried at most, in geometric steps."""


DEFAULT_SEPARATION: Final = SEPARATION
"""The least difference of mean S within groups and mean S between them."""


@dataclass(frozen=True, slots=True)
class Division:
    """A given number of clusters, or a given distance between them.

    Attributes:
        n_clusters: how many clusters to make; each model is one where there are fewer models.
        distance_threshold: clusters this far apart on average (1 - S), or farther, stay apart.

    Raises:
        InvalidParameter: one of them is out of its range, or both are given.
    """

    n_clusters: int | None = None
    distance_threshold: float | None = None

    def __post_init__(self) -> None:
        count, far = self.n_clusters, self.distance_threshold
        if count is not None and far is not None:
            raise InvalidParameter(
                "give n_clusters or distance_threshold, not both", field="n_clusters"
            )
        if count is not None and (type(count) is not int or count < 1):
            raise InvalidParameter(
                f"n_clusters must be a whole number, 1 or more, not {count!r}", field="n_clusters"
            )
        if far is not None and (not isinstance(far, int | float) or not 0 < far <= 1):
            raise InvalidParameter(
                f"distance_threshold must be above 0 and at most 1, not {far!r}",
                field="distance_threshold",
            )

    @property
    def is_given(self) -> bool:
        """Whether the number of clusters follows from this division."""
        return self.n_clusters is not None or self.distance_threshold is not None

    def groups(self, similarity: Floats) -> tuple[Labels, float | None]:
        """Labels and silhouette as of :func:`groups`, of clusters by average linkage.

        Args:
            similarity: S of all pairs, shape ``(n, n)``, symmetric, n from 1 on.
        """
        distances = MatrixDistances(np.asarray(similarity, np.float64))
        merges, heights = linkage_tree(distances.matrix())
        if self.n_clusters is not None:
            count = min(self.n_clusters, len(similarity))
        else:
            near = heights < (self.distance_threshold or 1.0)
            count = len(similarity) - int(near.sum())
        labels = compact(cut(merges, count))
        if count in (1, len(similarity)):
            return labels, None
        return labels, ClusterDistances.on(distances, labels).silhouette(beside_single=False)


def groups(
    similarity: Floats, *, num_perm: int | None = None, separation: float = DEFAULT_SEPARATION
) -> tuple[Labels, float | None]:
    """Group models by their similarities; one group of all if there is no clear structure.

    A silhouette is relative: nearly identical models have a good one for tiny differences. So
    groups count only if they are separated in S itself, too.

    Args:
        similarity: S of all pairs, shape ``(n, n)``, symmetric, n from 1 on.
        num_perm: h of the signatures that S was estimated from; None where it is exact.
        separation: the least difference of the mean S of pairs within groups and of other pairs.
            From 20 models on, three tenths of it are enough for groups that show in C and that
            chance does not make.

    Returns:
        Labels 0 to k - 1, the largest group first, shape ``(n,)``; and the silhouette of the
        groups, in which models alone in their group count 0, or None for one group of all.
    """
    n = len(similarity)
    everything = np.zeros(n, np.int64)
    if n < 3:
        return everything, None
    distances = MatrixDistances(np.asarray(similarity, np.float64))
    centred = CentredDistances.of(distances)
    merges = average_linkage(distances.matrix())
    counts = np.unique(np.geomspace(2, n - 1, _MAX_CUTS).round().astype(np.int64)).tolist()
    finest = compact(cut(merges, counts[-1]))
    measured = ClusterDistances.on(distances, finest)
    floor = chance_floor(n, *_mean_and_error(distances, num_perm))
    variance = float(distances.matrix()[~np.eye(n, dtype=bool)].var())

    def best(by: ClusterDistances, fits: Callable[[ClusterDistances, float], bool]) -> _Groups:
        """The groups with the best silhouette by some distances, and their silhouette in S."""
        found, best_score = everything, floor
        for count in counts:
            labels = cut(merges, count)
            coarser = np.empty(counts[-1], np.int64)
            coarser[finest] = labels
            score = by.merge(coarser).silhouette(beside_single=False)
            if score is None or score <= best_score:
                continue
            if fits(measured.merge(coarser), score):
                found, best_score = labels, score
        return compact(found), ClusterDistances.on(distances, found).silhouette(beside_single=False)

    in_s = best(measured, lambda them, _score: is_apart(them, variance, separation))
    in_c = best(
        ClusterDistances.on(centred, finest),
        lambda them, score: is_apart_in_c(them, variance, score, separation),
    )
    return in_c if is_kept(in_c[1], in_s[1]) else in_s


def average_linkage(distances: Floats) -> npt.NDArray[np.int64]:
    """The merges of the two clusters that are nearest on average, the nearest first.

    Args:
        distances: the distances of all pairs, shape ``(n, n)``, symmetric.

    Returns:
        A member of the one and of the other cluster of each merge, shape ``(n - 1, 2)``.
    """
    return linkage_tree(distances)[0]


def linkage_tree(distances: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """The merges of average linkage, and how far apart the two clusters of each were."""
    n = len(distances)
    between = np.array(distances, np.float64)
    np.fill_diagonal(between, np.inf)
    sizes = np.ones(n)
    merges, heights = np.empty((n - 1, 2), np.int64), np.empty(n - 1)
    chain: list[int] = []
    for step in range(n - 1):
        if not chain:
            chain.append(int(np.flatnonzero(sizes)[0]))
        while True:
            at = chain[-1]
            nearest = int(between[at].argmin())
            # Take the previous cluster of equally near ones, or the chain could run in a circle.
            if len(chain) > 1 and between[at, chain[-2]] <= between[at, nearest]:
                break
            chain.append(nearest)
        one, other = chain.pop(), chain.pop()
        merges[step], heights[step] = (one, other), between[one, other]
        mean = (sizes[one] * between[one] + sizes[other] * between[other]) / (
            sizes[one] + sizes[other]
        )
        between[one], between[:, one] = mean, mean
        between[other], between[:, other] = np.inf, np.inf
        between[one, one] = np.inf
        sizes[one], sizes[other] = sizes[one] + sizes[other], 0
    # A chain finds the merges of the tree in another order than their heights have.
    order = np.argsort(heights, kind="stable")
    return merges[order], heights[order]


def cut(merges: npt.NDArray[np.int64], count: int) -> Labels:
    """The labels of ``count`` clusters, in any order: the last ``count - 1`` merges are left out.

    Args:
        merges: as of :func:`average_linkage`.
        count: 1 to n.
    """
    n = len(merges) + 1
    parent = np.arange(n)

    def root(member: int) -> int:
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = int(parent[member])
        return member

    for one, other in merges[: n - count].tolist():
        parent[root(one)] = root(other)
    roots = np.array([root(member) for member in range(n)])
    return np.unique(roots, return_inverse=True)[1].astype(np.int64)


def _mean_and_error(distances: MatrixDistances, num_perm: int | None) -> tuple[float, float | None]:
    mean = float(distances.matrix().mean())
    if num_perm is None:
        return mean, None
    similarity = 1.0 - mean
    return mean, standard_error(similarity / (2.0 - similarity), num_perm)
