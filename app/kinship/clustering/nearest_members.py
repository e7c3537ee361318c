"""The answer about a newcomer of a clustering of supports, with the nearest models as witnesses.

``modelkin.core.kinship.newcomers`` has the rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from app.kinship.clustering.records import ClusteringContent
from app.models.spaces.records import SpaceRecord
from modelkin.core.clustering.clustering import NOISE
from modelkin.core.kinship import newcomers
from modelkin.core.kinship.donors import expected_by_size
from modelkin.core.kinship.nearness import Nearness
from modelkin.core.kinship.newcomers import VOTERS, Yardstick, pairs_within, place
from modelkin.types.clusterings import Assignment, Vote
from modelkin.types.search import Neighbor

__all__ = ["nearest_cluster", "witnesses", "yardsticks"]

NO_NEARNESS: Final[Mapping[str, Nearness]] = MappingProxyType({})


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
    voters = [item for item in near if item.similarity > 0][:VOTERS]
    unrelated = {name for name, found in nearness.items() if found.unrelated}
    placed = place(label_of, near, sizes=sizes, unrelated=unrelated, by=yardsticks)
    exemplars = dict(zip(content.clusters, content.exemplars, strict=True))
    return Assignment(
        clustering=clustering_id,
        cluster=placed.cluster,
        exemplar=None if placed.cluster == NOISE else exemplars.get(placed.cluster),
        share=placed.share,
        similarity=placed.similarity,
        votes=witnesses(label_of, voters, nearness),
        margin=placed.margin,
        mean_similarity=placed.mean_similarity,
        within=placed.within,
        nearest_members=placed.members,
        reason=placed.reason,
        note=placed.note,
        log10_p=_log10_p(label_of, voters, nearness, placed.nearest),
    )


def yardsticks(
    space: SpaceRecord,
    content: ClusteringContent,
    voters: Sequence[Neighbor],
    pairs: Mapping[str, tuple[int, int]],
) -> dict[int, Yardstick]:
    """The yardstick of each cluster; empty for a clustering of an earlier version.

    Args:
        pairs: the numbers of indices of the newcomer and of each voter, by the voter's name.
    """
    if not content.within:
        return {}
    known = [(item, pairs[item.model]) for item in voters if item.model in pairs]
    return newcomers.yardsticks(
        content.clusters,
        pairs_within(content.labels, content.clusters, content.within),
        [pair for _, pair in known],
        [
            expected_by_size(pair, space.num_parameters) if item.expected is None else item.expected
            for item, pair in known
        ],
    )


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
