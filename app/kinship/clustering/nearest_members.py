"""The cluster that a newcomer is most similar to, with the nearest models as its witnesses.

The nearness of a cluster is the mean S of its ten nearest members, or of all if it has fewer. So a
large cluster does not outvote a nearer small one, as it would if the nearest models of the space
voted. And a cluster that is spread out is judged by its near part, not by the mean of all its
members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from app.kinship.clustering.records import ClusteringContent
from app.kinship.clustering.yardsticks import Yardstick
from modelkin.core.clustering.clustering import NOISE
from modelkin.types.clusterings import Assignment, Vote
from modelkin.types.search import Neighbor

__all__ = ["VOTERS", "cluster_similarities", "is_decided", "nearest_cluster", "witnesses"]

VOTERS: Final = 10
"""Members that decide how near a cluster is, and models that the answer lists."""
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


def witnesses(label_of: Mapping[str, int], voters: Sequence[Neighbor]) -> tuple[Vote, ...]:
    """The models that an answer lists, each with its cluster."""
    return tuple(
        Vote(
            item.model,
            item.similarity,
            item.estimate,
            item.standard_error,
            label_of[item.model],
            item.expected,
            item.kappa,
        )
        for item in voters
    )


def nearest_cluster(
    clustering_id: str,
    content: ClusteringContent,
    label_of: Mapping[str, int],
    near: Sequence[Neighbor],
    unrelated: Collection[str] = (),
    *,
    sizes: Mapping[int, int] | None = None,
    yardsticks: Mapping[int, Yardstick] | None = None,
) -> Assignment:
    """Find the nearest cluster, and its share of the similarity beyond the nearest other model.

    Args:
        near: the compared models, nearest first; the first ten are listed.
        unrelated: the models that chance alone would make as near. If all listed models are
            unrelated, the newcomer is in no cluster, and the answer lists them nevertheless.
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
    winner = max(means, key=lambda cluster: (means[cluster], counts[cluster]), default=NOISE)
    mean = None if winner == NOISE else means[winner]
    yardstick = (yardsticks or {}).get(winner)
    nowhere = Assignment(
        clustering=clustering_id,
        cluster=NOISE,
        share=0.0,
        similarity=near[0].similarity if near else None,
        mean_similarity=mean,
        within=None if yardstick is None else yardstick.within,
        votes=witnesses(label_of, voters),
        margin=0.0,
        reason=_why_nowhere(voters, unrelated, winner, mean, yardstick),
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


def _why_nowhere(
    voters: Sequence[Neighbor],
    unrelated: Collection[str],
    winner: int,
    mean: float | None,
    yardstick: Yardstick | None,
) -> str | None:
    """The reason why a newcomer is in no cluster; None if it is in the nearest one."""
    if not voters:
        return "it shares no index with any model of the clustering"
    if mean is None:
        return "the models nearest to it are in no cluster"
    if all(item.model in unrelated for item in voters):
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
