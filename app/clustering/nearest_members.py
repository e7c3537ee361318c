"""The cluster that a newcomer is most similar to, with the nearest models as its witnesses.

A cluster is as near as the mean S of its ten nearest members, or of all where it has fewer. So a
large cluster does not outvote a small one that is nearer, as it would if the nearest models of the
space voted. And a cluster that is spread out is judged by its near part, as it would not be by the
mean of all its members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from app.clustering.records import ClusteringContent
from modelkin.core.clustering.clustering import NOISE
from modelkin.types.clusterings import Assignment, Vote
from modelkin.types.search import Neighbor

__all__ = ["VOTERS", "cluster_similarities", "is_decided", "nearest_cluster", "witnesses"]

VOTERS: Final = 10
"""Members that decide how near a cluster is, and models that the answer lists."""
_DIGITS: Final = 12
"""Beyond these a mean differs by the order of its sum alone."""


def cluster_similarities(
    label_of: Mapping[str, int], near: Sequence[Neighbor], sizes: Mapping[int, int]
) -> dict[int, float]:
    """The mean S of the ten nearest members of each cluster, that of the nearest model first.

    A member that was not compared counts as the farthest that was: it is no nearer.

    Args:
        label_of: the cluster of each model.
        near: the models that were compared, nearest first.
        sizes: how many members each cluster has; one that is left out is not sought.
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
    """Whether no model beyond these can change which cluster is nearest.

    It is so where all members that decide of the nearest cluster are among them: what is not among
    them is farther, and counts as if it were not.
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
    least: Mapping[int, float] | None = None,
) -> Assignment:
    """The nearest cluster, and its share of the similarity beyond the nearest model without a vote.

    Args:
        near: the models that were compared, nearest first; the first ten are listed.
        unrelated: the models that chance alone would make as near. If all that are listed are, the
            newcomer is in no cluster, and the answer lists them nevertheless.
        sizes: how many members each cluster has; None for those of ``near``.
        least: the mean S that a cluster demands, likewise; below it the newcomer is in none.
    """
    near = [item for item in near if item.similarity > 0]
    voters = near[:VOTERS]
    counts = Counter(label_of[item.model] for item in voters)
    sizes = Counter(label_of[item.model] for item in near) if sizes is None else sizes
    means = cluster_similarities(label_of, near, sizes)
    # Ties go to the cluster with more votes, then to that of the nearest model: dictionaries keep
    # their order.
    winner = max(means, key=lambda cluster: (means[cluster], counts[cluster]), default=NOISE)
    is_near = bool(means) and not all(item.model in unrelated for item in voters)
    is_near = is_near and means[winner] >= (least or {}).get(winner, 0.0)
    if not is_near:
        return Assignment(
            clustering=clustering_id,
            cluster=NOISE,
            share=0.0,
            similarity=0.0,
            votes=witnesses(label_of, voters),
            margin=0.0,
        )
    share, margin = _shares(winner, means, counts, near)
    nearest = next(item for item in near if label_of[item.model] == winner)
    return Assignment(
        clustering=clustering_id,
        cluster=winner,
        exemplar=dict(zip(content.clusters, content.exemplars, strict=True)).get(winner),
        share=share,
        similarity=nearest.similarity,
        votes=witnesses(label_of, voters),
        margin=margin,
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
