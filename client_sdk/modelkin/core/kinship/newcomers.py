"""Where a newcomer belongs among clusters of supports: one rule for services and federations.

The nearness of a cluster is the mean S of its ten nearest members, or of all if it has fewer. So a
large cluster does not outvote a nearer small one, as it would if the nearest models of the space
voted. And a cluster that is spread out is judged by its near part, not by the mean of all its
members.

Whatever a newcomer's data are, its support shares something with every model: a stranger is nearest
to some cluster, too. So the nearest cluster has to be near enough, by a yardstick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Protocol

from modelkin.core.clustering.clustering import NOISE

__all__ = [
    "VOTERS",
    "Near",
    "Placement",
    "Yardstick",
    "cluster_similarities",
    "is_decided",
    "pairs_within",
    "place",
    "yardsticks",
]

VOTERS: Final = 10
"""Members that decide how near a cluster is, and models that an answer lists."""
_DIGITS: Final = 12
"""Digits of a mean; further digits depend on the order of the sum alone."""
_SHARE_OF_KIN: Final = 0.5
"""The least share of the members' S beyond chance that a newcomer in their cluster has.

By ``python -m studies newcomers``, this places all kin, no models of other weights, and noise by
one of two networks.
"""
_SHARE_OF_MEMBERS: Final = 0.95
"""The share of the members' S beyond chance below which a placed newcomer gets a note.

By the same study, kin with as many samples as the members reach it. Many newcomers of an unknown
group, and kin at other weights, do not.
"""


class Near(Protocol):
    """A model that was compared with a newcomer."""

    @property
    def model(self) -> str:
        """Its name."""
        ...

    @property
    def similarity(self) -> float:
        """S to the newcomer."""
        ...


@dataclass(frozen=True, slots=True)
class Yardstick:
    """The yardstick of a newcomer's mean S to a cluster.

    Attributes:
        chance: S0 of the nearest models, the same for all clusters.
        within: the mean S of the members' pairs, as far as the newcomer's K allows it.
    """

    chance: float
    within: float

    @property
    def least(self) -> float:
        """Half-way from chance to what the members have: below it a newcomer is in no cluster."""
        return self.chance + _SHARE_OF_KIN * (self.within - self.chance)

    @property
    def usual(self) -> float:
        """The S below which a newcomer is less like the members than they are like each other."""
        return self.chance + _SHARE_OF_MEMBERS * (self.within - self.chance)


@dataclass(frozen=True, slots=True)
class Placement:
    """The cluster of a newcomer, and how near it is.

    Attributes:
        cluster: the cluster; -1 for none.
        nearest: the nearest cluster, also where it is not near enough; -1 where none is near.
        share: its share of what the clusters' means have beyond the 11th nearest model, 0 to 1; or
            of the votes where none is beyond it.
        margin: its share less that of the next cluster.
        similarity: S to the nearest model of the cluster, or of all for no cluster.
        mean_similarity: the mean S to the ten nearest members of the nearest cluster.
        within: that of the yardstick of the nearest cluster.
        members: the names of those ten, the nearest first; empty for no cluster.
        reason: why the newcomer is in no cluster.
        note: a doubt where it is less like the members than they are like each other.
    """

    cluster: int
    nearest: int
    share: float
    margin: float
    similarity: float | None
    mean_similarity: float | None
    within: float | None
    members: tuple[str, ...]
    reason: str | None
    note: str | None


def place(
    label_of: Mapping[str, int],
    near: Sequence[Near],
    *,
    sizes: Mapping[int, int] | None = None,
    unrelated: Collection[str] = frozenset(),
    by: Mapping[int, Yardstick] | None = None,
) -> Placement:
    """Find the nearest cluster, if it is near enough.

    Args:
        label_of: the cluster of each model.
        near: the compared models, nearest first; the first ten vote.
        sizes: the number of members of each cluster; None to count those in ``near``.
        unrelated: the voters that are no nearer than unrelated models are. A cluster whose voters
            are all unrelated is not near.
        by: the yardstick of each cluster; below ``least`` a newcomer is in no cluster.
    """
    near = [item for item in near if item.similarity > 0]
    voters = near[:VOTERS]
    counts = Counter(label_of[item.model] for item in voters)
    sizes = Counter(label_of[item.model] for item in near) if sizes is None else sizes
    means = cluster_similarities(label_of, near, sizes)
    # Ties go to the cluster with more votes, then to that of the nearest model: dictionaries keep
    # their order.
    kin = {label_of[item.model] for item in voters if item.model not in unrelated}
    strangers = counts.keys() - kin if kin else set[int]()
    among = [cluster for cluster in means if cluster not in strangers]
    winner = max(among, key=lambda cluster: (means[cluster], counts[cluster]), default=NOISE)
    mean = None if winner == NOISE else means[winner]
    yardstick = (by or {}).get(winner)
    reason = _why_nowhere(voters, bool(kin), winner, mean, yardstick)
    within = None if yardstick is None else yardstick.within
    if reason is not None or mean is None:
        first = near[0].similarity if near else None
        return Placement(NOISE, winner, 0.0, 0.0, first, mean, within, (), reason, None)
    share, margin = _shares(winner, means, counts, near)
    own = [item for item in near if label_of[item.model] == winner]
    return Placement(
        cluster=winner,
        nearest=winner,
        share=share,
        margin=margin,
        similarity=own[0].similarity,
        mean_similarity=mean,
        within=within,
        members=tuple(item.model for item in own[:VOTERS]),
        reason=None,
        note=_doubt(winner, mean, yardstick),
    )


def cluster_similarities(
    label_of: Mapping[str, int], near: Sequence[Near], sizes: Mapping[int, int]
) -> dict[int, float]:
    """Return each cluster's mean S of its ten nearest members; the nearest model's comes first.

    A member that was not compared counts as the farthest compared model: it is no nearer.

    Args:
        label_of: the cluster of each model.
        near: the compared models, nearest first.
        sizes: the number of members of each cluster; clusters that are left out are ignored.
    """
    found: dict[int, list[float]] = {}
    for item in near:
        cluster = label_of[item.model]
        if cluster in sizes and len(own := found.setdefault(cluster, [])) < VOTERS:
            own.append(item.similarity)
    means = {}
    for cluster, own in found.items():
        count = max(len(own), min(VOTERS, sizes[cluster]))
        total = sum(own) + (count - len(own)) * near[-1].similarity
        means[cluster] = round(total / count, _DIGITS)
    return means


def is_decided(label_of: Mapping[str, int], near: Sequence[Near], sizes: Mapping[int, int]) -> bool:
    """Whether no further model can change which cluster is nearest.

    This is so if ``near`` has all deciding members of the nearest cluster: models outside ``near``
    are farther, and already count as if they were not.
    """
    means = cluster_similarities(label_of, near, sizes)
    if not means:
        return False
    nearest = max(means, key=lambda cluster: means[cluster])
    members = sum(label_of[item.model] == nearest for item in near)
    return members >= min(VOTERS, sizes[nearest])


def yardsticks(
    clusters: Iterable[int],
    within: Mapping[int, float],
    pairs: Sequence[tuple[int, int]],
    expected: Sequence[float],
) -> dict[int, Yardstick]:
    """The yardstick of each cluster; none where nothing is known.

    A cluster of one has no S within, so the mean of the other clusters stands in. A newcomer of
    another K cannot reach the S of the members, so the yardstick is the S that its K allows.

    Args:
        clusters: the clusters.
        within: the mean S of the pairs of each cluster's members, where it has two or more.
        pairs: the numbers of indices of the newcomer and of each voter.
        expected: S0 of the newcomer and of each voter.
    """
    if not within or not pairs:
        return {}
    chance = fmean(expected)
    reach = fmean(2.0 * min(pair) / max(1, sum(pair)) for pair in pairs)
    usual = fmean(within.values())
    return {cluster: Yardstick(chance, within.get(cluster, usual) * reach) for cluster in clusters}


def pairs_within(
    labels: Sequence[int], clusters: Sequence[int], within: Sequence[float]
) -> dict[int, float]:
    """Return the mean S of the pairs of each cluster's members; a cluster of one has none.

    Args:
        labels: the cluster of each model.
        clusters: the ids of the clusters.
        within: the mean S of each cluster's members, each with itself included.
    """
    sizes = Counter(labels)
    return {
        cluster: (sizes[cluster] * mean - 1.0) / (sizes[cluster] - 1)
        for cluster, mean in zip(clusters, within, strict=True)
        if sizes[cluster] > 1
    }


def _why_nowhere(
    voters: Sequence[Near],
    is_near: bool,
    winner: int,
    mean: float | None,
    yardstick: Yardstick | None,
) -> str | None:
    """The reason why a newcomer is in no cluster; None if it is in the nearest one."""
    if not voters:
        return "it shares no index with any model of the clustering"
    if mean is None:
        return "the models nearest to it are in no cluster"
    if not is_near:
        return "the models nearest to it are as near as chance makes two models"
    if yardstick is None or mean >= yardstick.least:
        return None
    return (
        f"its mean S to the nearest cluster, {winner}, is {mean:.3f}, below {yardstick.least:.3f}: "
        f"half-way from chance ({yardstick.chance:.3f}) to what the members have among themselves "
        f"({yardstick.within:.3f})"
    )


def _doubt(winner: int, mean: float, yardstick: Yardstick | None) -> str | None:
    """A note where a newcomer is less like the members than they are like each other."""
    if yardstick is None or mean >= yardstick.usual:
        return None
    return (
        f"its mean S to cluster {winner} is {mean:.3f}, and the members have "
        f"{yardstick.within:.3f} among themselves: it may have fewer samples than they have, be of "
        f"a group that has no cluster, or have its support from other weights"
    )


def _shares(
    winner: int, means: Mapping[int, float], counts: Mapping[int, int], near: Sequence[Near]
) -> tuple[float, float]:
    """The share of a cluster, and how much more it is than that of the next.

    Clusters weigh by their means beyond S of the nearest model without a vote. If none is beyond
    it, each vote counts one.
    """
    without = near[VOTERS].similarity if len(near) > VOTERS else 0.0
    weights: Mapping[int, float] = {
        cluster: max(0.0, mean - without) for cluster, mean in means.items()
    }
    if weights[winner] <= 0:
        weights = counts
    total = sum(weights.values())
    others = max((weight for each, weight in weights.items() if each != winner), default=0)
    own = weights.get(winner, 0)
    return own / total, max(0, own - others) / total
