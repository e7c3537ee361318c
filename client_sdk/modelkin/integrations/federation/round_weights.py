"""``weigh_round``: how much each client of a round counts in each mean that is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from modelkin.integrations.federation.kin_robust import Verdicts
from modelkin.integrations.federation.node_weights import (
    NodeWeights,
    RoundMembers,
    WeightName,
    Weights,
    node_weights,
)

__all__ = ["RoundWeights", "weigh_round"]

Id = TypeVar("Id", int, str)


@dataclass(frozen=True, slots=True, eq=False)
class RoundWeights(Generic[Id]):
    """The weights of a round's clients.

    Attributes:
        everyone: in the mean of all.
        own: the share of each client in the mean of its cluster, or of all where no cluster is
            averaged alone; with the reasons of both means, and of models that have no part.
    """

    everyone: Weights[Id]
    own: Weights[Id]


def weigh_round(
    known: RoundMembers[Id],
    wrong: Mapping[Id, str],
    weights: WeightName,
    verdicts: Verdicts[Id],
    clusters: Mapping[int, Sequence[Id]] | None,
) -> RoundWeights[Id]:
    """Weigh the clients of a round.

    Args:
        known: the clients whose models can be averaged.
        wrong: why others' cannot, by client.
        weights: the rule.
        verdicts: how much less than the rule says some count.
        clusters: the clients of each cluster that is averaged alone; None where only all are.
    """
    rule = node_weights(weights)
    everyone = verdicts.rule(rule, common=True)(sorted(known.models), known)
    own = Weights(everyone.shares, everyone.down)
    if clusters is not None:
        own = _shares(clusters, known, verdicts.rule(rule, common=False))
    left_out = dict.fromkeys(wrong, 0.0)
    reasons = {**wrong, **_of_all_alone(everyone, own, verdicts, clusters), **own.down}
    return RoundWeights(everyone, Weights({**left_out, **own.values}, reasons))


def _shares(
    clusters: Mapping[int, Sequence[Id]], known: RoundMembers[Id], weigh: NodeWeights
) -> Weights[Id]:
    """The share of each client in the mean of its cluster, of those that have a model."""
    values, down = dict[Id, float](), dict[Id, str]()
    for members in clusters.values():
        own = weigh([member for member in members if member in known.models], known)
        values.update(own.shares)
        down.update(own.down)
    return Weights(values, down)


def _of_all_alone(
    everyone: Weights[Id],
    own: Weights[Id],
    verdicts: Verdicts[Id],
    clusters: Mapping[int, Sequence[Id]] | None,
) -> dict[Id, str]:
    """The reasons of the mean of all; of those that count whole in a cluster's, with the share."""
    reasons, limits = dict(everyone.down), verdicts.limits
    for cluster, members in ({} if clusters is None else clusters).items():
        few = ""
        if limits is not None and len(members) < limits.min_members:
            few = f": {len(members)} clients are fewer than min_members={limits.min_members}"
        for member in members:
            share = own.values.get(member, 0.0)
            if member in verdicts.common.keys() - verdicts.own.keys() and share:
                where = f"in the mean of all alone; its share of cluster {cluster} is {share:.2f}"
                reasons[member] += f" ({where}{few})"
    return reasons
