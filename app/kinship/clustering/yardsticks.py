"""Yardsticks for a newcomer's mean S to a cluster: chance, and the S of the cluster's members.

Whatever a newcomer's data are, its support shares something with every model of its space: a
stranger is nearest to some cluster, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from app.kinship.clustering.records import ClusteringContent
from app.models.spaces.records import SpaceRecord
from modelkin.core.kinship.donors import expected_by_size
from modelkin.types.search import Neighbor

__all__ = ["Yardstick", "pairs_within", "yardsticks"]

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


def yardsticks(
    space: SpaceRecord,
    content: ClusteringContent,
    voters: Sequence[Neighbor],
    pairs: Mapping[str, tuple[int, int]],
) -> dict[int, Yardstick]:
    """The yardstick of each cluster; empty for a clustering of an earlier version.

    A cluster of one has no S within, so the mean of the other clusters stands in. A newcomer of
    another K cannot reach the S of the members, so the yardstick is the S that its K allows.

    Args:
        pairs: the numbers of indices of the newcomer and of each voter, by the voter's name.
    """
    known = [(item, pairs[item.model]) for item in voters if item.model in pairs]
    if not content.within or not known:
        return {}
    own = pairs_within(content.labels, content.clusters, content.within)
    if not own:
        return {}
    chance = fmean(
        expected_by_size(pair, space.num_parameters) if item.expected is None else item.expected
        for item, pair in known
    )
    reach = fmean(2.0 * min(pair) / max(1, sum(pair)) for _, pair in known)
    usual = fmean(own.values())
    return {
        cluster: Yardstick(chance, own.get(cluster, usual) * reach) for cluster in content.clusters
    }


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
