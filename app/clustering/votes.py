"""Votes of the nearest clustered models on the cluster of a newcomer.

The weight of a vote is the voter's S minus the S of the nearest model without a vote. So a large
cluster farther away does not outvote a small one, as it would if all votes counted alike. If all
are equally similar, they do count alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from app.clustering.records import ClusteringContent
from modelkin.core.clustering.clustering import NOISE
from modelkin.types.clusterings import Assignment, Vote
from modelkin.types.search import Neighbor

__all__ = ["VOTERS", "count_votes"]

VOTERS: Final = 10


def count_votes(
    clustering_id: str,
    content: ClusteringContent,
    label_of: Mapping[str, int],
    near: Sequence[Neighbor],
    unrelated: Collection[str] = (),
) -> Assignment:
    """Count the votes of the nearest models, given in order.

    Args:
        unrelated: the models that chance alone would make as near. If all voters are, the newcomer
            is in no cluster, and the answer lists them nevertheless.
    """
    near = [item for item in near if item.similarity > 0]
    voters = near[:VOTERS]
    least = near[VOTERS].similarity if len(near) > VOTERS else 0.0
    weighted = any(item.similarity > least for item in voters)
    weights: dict[int, float] = {}
    is_near = not all(item.model in unrelated for item in voters)
    for item in voters if is_near else ():
        cluster = label_of[item.model]
        weight = item.similarity - least if weighted else 1.0  # equally near models count alike
        weights[cluster] = weights.get(cluster, 0.0) + weight
    # Ties go to the cluster of the nearest model: dictionaries keep their order.
    winner = max(weights, key=lambda cluster: weights[cluster], default=NOISE)
    total = sum(weights.values())
    ranked = [*sorted(weights.values(), reverse=True), 0.0]
    votes = tuple(
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
    own = [vote for vote in votes if vote.cluster == winner]
    exemplar_of = dict(zip(content.clusters, content.exemplars, strict=True))
    return Assignment(
        clustering=clustering_id,
        cluster=winner,
        exemplar=exemplar_of.get(winner),
        share=weights[winner] / total if weights else 0.0,
        similarity=own[0].similarity if own and weights else 0.0,
        votes=votes,
        margin=(ranked[0] - ranked[1]) / total if weights else 0.0,
    )
