"""The cluster that a newcomer is most similar to, with the nearest models as its witnesses.

The nearness of a cluster is the mean S of its ten nearest members, or of all if it has fewer. So a
large cluster does not outvote a nearer small one, as it would if the nearest models of the space
voted. And a cluster that is spread out is judged by its near part, not by the mean of all its
members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from app.kinship.clustering.records import ClusteringContent
from app.kinship.clustering.yardsticks import Yardstick
from modelkin.core.clustering.clustering import NOISE
from modelkin.core.kinship.nearness import Nearness
from modelkin.types.clusterings import Assignment, Vote
from modelkin.types.search import Neighbor

__all__ = ["VOTERS", "cluster_similarities", "is_decided", "nearest_cluster", "witnesses"]

VOTERS: Final = 10
"""Members that decide how near a cluster is, and models that the answer lists."""
NO_NEARNESS: Final[Mapping[str, Nearness]] = MappingProxyType({})
_DIGITS: Final = 12
"""Digits of a mean; further digits depend on the order of the sum alone."""


def cluster_similarities(
    label_of: Mapping[str, int], near: Sequence[Neighbor], sizes: Mapping[int, int]
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


def is_decided(
    label_of: Mapping[str, int], near: Sequence[Neighbor], sizes: Mapping[int, int]
) -> bool:
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


def witnesses(
    label_of: Mapping[str, int],
    voters: Sequence[Neighbor],
    nearness: Mapping[str, Nearness] = NO_NEARNESS,
) -> tuple[Vote, ...]:
    """The models that an answer lists, each with its cluster, and with its P where it is known."""
    return tuple(
        Vote(
            item.model,
            item.similarity,
            item.estimate,
            item.standard_error,
            label_of[item.model],
            item.expected,
            item.kappa,
            nearness[item.model].log10_p if item.model in nearness else None,
        )
        for item in voters
    )


def nearest_cluster(
    clustering_id: str,
    content: ClusteringContent,
    label_of: Mapping[str, int],
    near: Sequence[Neighbor],
    nearness: Mapping[str, Nearness] = NO_NEARNESS,
    *,
    sizes: Mapping[int, int] | None = None,
    yardsticks: Mapping[int, Yardstick] | None = None,
) -> Assignment:
    """Find the nearest cluster, and its share of the similarity beyond the nearest other model.

    Args:
        near: the compared models, nearest first; the first ten are listed.
        nearness: of the listed models, beside unrelated ones, by name. A cluster whose listed
            members are all unrelated is not near; where that is so of all clusters, the newcomer is
            in none, and the answer lists them nevertheless.
        sizes: the number of members of each cluster; None to count those in ``near``.
        yardsticks: yardsticks by cluster; below ``least`` a newcomer is in no cluster.
    """
    near = [item for item in near if item.similarity > 0]
    voters = near[:VOTERS]
    counts = Counter(label_of[item.model] for item in voters)
    sizes = Counter(label_of[item.model] for item in near) if sizes is None else sizes
    means = cluster_similarities(label_of, near, sizes)
    # Ties go to the cluster with more votes, then to that of the nearest model: dictionaries keep
    # their order.
    kin = _kin_clusters(label_of, voters, nearness)
    strangers = counts.keys() - kin if kin else set[int]()
    among = [cluster for cluster in means if cluster not in strangers]
    winner = max(among, key=lambda cluster: (means[cluster], counts[cluster]), default=NOISE)
    mean = None if winner == NOISE else means[winner]
    yardstick = (yardsticks or {}).get(winner)
    nowhere = Assignment(
        clustering=clustering_id,
        cluster=NOISE,
        share=0.0,
        similarity=near[0].similarity if near else None,
        mean_similarity=mean,
        within=None if yardstick is None else yardstick.within,
        votes=witnesses(label_of, voters, nearness),
        margin=0.0,
        reason=_why_nowhere(voters, bool(kin), winner, mean, yardstick),
        log10_p=_log10_p(label_of, voters, nearness, winner),
    )
    if nowhere.reason is not None:
        return nowhere
    share, margin = _shares(winner, means, counts, near)
    own = [item for item in near if label_of[item.model] == winner]
    return replace(
        nowhere,
        cluster=winner,
        exemplar=dict(zip(content.clusters, content.exemplars, strict=True)).get(winner),
        share=share,
        similarity=own[0].similarity,
        nearest_members=tuple(item.model for item in own[:VOTERS]),
        margin=margin,
        note=_doubt(winner, means[winner], yardstick),
    )


def _kin_clusters(
    label_of: Mapping[str, int], voters: Sequence[Neighbor], nearness: Mapping[str, Nearness]
) -> set[int]:
    """The clusters of which a voter is nearer than unrelated models are, or not known to be one."""
    return {
        label_of[item.model]
        for item in voters
        if item.model not in nearness or not nearness[item.model].unrelated
    }


def _log10_p(
    label_of: Mapping[str, int],
    voters: Sequence[Neighbor],
    nearness: Mapping[str, Nearness],
    winner: int,
) -> float | None:
    """The P of the nearest voter of a cluster, or of the nearest of all where it has none."""
    own = [item for item in voters if label_of[item.model] == winner] or voters
    found = nearness.get(own[0].model) if own else None
    return None if found is None else found.log10_p


def _why_nowhere(
    voters: Sequence[Neighbor],
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
    winner: int, means: Mapping[int, float], counts: Mapping[int, int], near: Sequence[Neighbor]
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
