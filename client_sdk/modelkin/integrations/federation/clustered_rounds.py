"""``ClusteredRounds``: a federation whose clusters have models of their own, without any engine.

An engine says who is there, sends each client its model, and hands over what comes back. Nodes are
numbers that the engine gives to its clients, and keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from modelkin.core.clustering.linkage import DEFAULT_SEPARATION, Division
from modelkin.errors import InvalidParameter
from modelkin.federation.learngenes.aggregate import check_min_members, real_number
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.cluster_history import ClusterHistory, RoundClusters
from modelkin.integrations.federation.cluster_means import (
    Model,
    cluster_means,
    mean_model,
    misfits,
)
from modelkin.integrations.federation.data_clusters import Asker, DataClusters
from modelkin.integrations.federation.first_supports import check_forget_after
from modelkin.integrations.federation.kin_robust import KinJudge, KinRobust, Verdicts
from modelkin.integrations.federation.messages import check_k_max
from modelkin.integrations.federation.metric_forms import forms_of, odd_forms
from modelkin.integrations.federation.node_weights import (
    RoundMembers,
    WeightName,
    Weights,
    check_weights,
)
from modelkin.integrations.federation.round_weights import weigh_round
from modelkin.integrations.federation.shards import vectors
from modelkin.integrations.federation.support_clusters import SupportClusters

__all__ = ["ClusterRules", "ClusteredRounds", "Reply", "Summed", "SummedMeans"]

log = logging.getLogger("modelkin.integrations")


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """How clients are clustered and averaged.

    Attributes:
        by: ``"supports"``, each round; or ``"data"``, by subspaces, once.
        weights: the rule of clients' weights; see ``node_weights``.
        robust: when a client's update does not count; None where all count.
        separation: see ``modelkin.core.clustering.linkage.groups``.
        n_clusters: the number of clusters; None where it is to be found.
        distance_threshold: in its place, the mean distance from which clusters stay apart.
        forget_after: with ``by="supports"``, rounds without an answer after which a client is
            forgotten; None for never.
        k_max: the largest share of indices of a client's support; None for the usual one.
        recluster_every: with ``by="data"``, rounds until clusters are found again; None for never.
        min_members: a mean of fewer clients is not taken: their cluster keeps its model.
        missing: the reason to give where a client sent no support, or no subspace.

    Raises:
        InvalidParameter: a value is out of its range.
    """

    by: str = "supports"
    weights: WeightName = "examples"
    robust: KinRobust | None = None
    separation: float = DEFAULT_SEPARATION
    n_clusters: int | None = None
    distance_threshold: float | None = None
    forget_after: int | None = None
    k_max: float | None = None
    recluster_every: int | None = None
    min_members: int = 1
    missing: str = "it sent nothing to compare it by"

    def __post_init__(self) -> None:
        if self.by not in ("supports", "data"):
            raise InvalidParameter(f"by must be 'supports' or 'data', not {self.by!r}", field="by")
        check_forget_after(self.forget_after)
        if self.forget_after is not None and self.by == "data":
            raise InvalidParameter("forget_after is for by='supports'", field="forget_after")
        if self.recluster_every is not None and self.by != "data":
            raise InvalidParameter("recluster_every is for by='data'", field="recluster_every")
        check_weights(self.weights, self.by)
        check_min_members(self.min_members)
        check_k_max(self.k_max)

    @property
    def options(self) -> dict[str, Any]:
        """The rules as plain values, which a run that goes on must have as well."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        del found["missing"]
        return found | {"robust": None if self.robust is None else asdict(self.robust)}

    @property
    def division(self) -> Division:
        """The division of clients that is asked for."""
        return Division(self.n_clusters, self.distance_threshold)


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """A client's answer to a training message; nothing of it is checked.

    Attributes:
        arrays: the trained model.
        examples: how many examples the client claims; None where it says nothing of them.
        support: the values of its ``SupportMessage``; None where there are none.
        metrics: numbers by name.
    """

    arrays: Model
    examples: object = None
    support: Mapping[str, Any] | None = None
    metrics: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class SummedMeans:
    """Means that clients made without a party that sees their models.

    Attributes:
        models: the mean of each cluster that was averaged alone, and under None that of others.
        examples: the examples of each client that counts, by the same groups.
        left_out: the reasons why other clients do not count.
    """

    models: Mapping[int | None, Model]
    examples: Mapping[int | None, Mapping[int, int]]
    left_out: Mapping[int, str]


Summed = Callable[[Mapping[int, Sequence[int]]], SummedMeans]
"""Makes means of the clients of each cluster."""


class ClusteredRounds:
    """The rounds of a federation in which each cluster of clients has a model.

        rounds.begin(1, {1: "north", 2: "south"}, ask)
        sent = {node: rounds.model_for(node) for node in sampled}
        found = rounds.finish(1, {node: Reply(...) for node in answered})

    The mean of each cluster is its model: from the next round on its clients get it. A client in no
    cluster gets the mean of all. With ``by="supports"`` the support of each client at the weights
    of the first round is kept: a new client gets those weights, and its answer then counts only
    where its cluster has no model yet. With ``by="data"`` each client is asked once for its
    subspace, before its first round; a latecomer is placed, and gets its cluster's model at once.

    Args:
        arrays: the model to begin with.
        rules: how clients are clustered and averaged.
        num_values: the values of the whole model, where clients share only a part of it.

    Raises:
        InvalidParameter: a rule is out of its range.

    Source: the Index-Overlap Similarity paper, section 5 (clustered federated learning).
    """

    def __init__(self, arrays: Model, rules: ClusterRules, num_values: int | None = None) -> None:
        self.arrays: Model = {name: np.asarray(values) for name, values in arrays.items()}
        """The mean of all clients."""
        own = sum(values.size for values in self.arrays.values())
        self.num_values = own if num_values is None else num_values
        """The values of the whole model."""
        self.rules = rules
        self.names = ClientNames()
        """The clients' names, by whose order models are summed."""
        self.history = ClusterHistory(rules.separation, rules.division)
        by_data = rules.by == "data"
        self.supports = SupportClusters[Model](
            self.history,
            self.names,
            keeps_first=not by_data,
            forget_after=rules.forget_after,
            k_max=rules.k_max,
            missing=rules.missing,
        )
        data = DataClusters(
            self.history,
            self.names,
            missing=rules.missing,
            recluster_every=rules.recluster_every,
        )
        self.data = data if by_data else None
        """The clusters by data; None where clients are clustered by supports."""
        self.judge = None if rules.robust is None else KinJudge[int](rules.robust, self.names.of)
        """The judge of clients' updates; None where all count."""
        self._sent: dict[int, Model] = {}
        self._contents: Mapping[int, Any] = {}
        self.clusters: RoundClusters | None = None
        """The clusters of the last round; None before the first, or if no client can be placed."""
        self.cluster_arrays: dict[int, Model] = {}
        """The model of each cluster."""
        self.metrics: dict[int | None, dict[str, float]] = {}
        """The mean metrics of the last round of each cluster, and of all under None."""

    @property
    def k(self) -> int | None:
        """The K that clients should select, or None."""
        return self.history.k

    def begin(self, server_round: int, present: Mapping[int, str], ask: Asker) -> None:
        """Begin a round.

        Args:
            server_round: the round's number, from 1.
            present: the names of the connected nodes.
            ask: asks nodes for their subspaces, with ``by="data"``.
        """
        self.names.names.update(present)
        self.supports.begin(self.arrays, self.num_values, present)
        if self.data is not None:
            self._contents = self.data.subspaces
            self.clusters = self.data.update(server_round, sorted(present), ask)

    def model_for(self, node: int) -> Model:
        """The model that a client gets to train in this round."""
        cluster = self.history.cluster_of(node)
        own = None if cluster is None else self.cluster_arrays.get(cluster)
        if self.supports.keeps_first and cluster is None:
            own = self.supports.first.lend(node)
        self._sent[node] = self.arrays if own is None else own
        return self._sent[node]

    def finish(self, server_round: int, replies: Mapping[int, Reply]) -> RoundClusters | None:
        """Cluster the clients, and average each cluster and all.

        Args:
            server_round: the round's number.
            replies: the answer of each client that gave one.

        Returns:
            The clusters, with the share of each client in its cluster's mean, and the reasons why
            some count less or not at all; None if no client can be placed.
        """
        members = self._cluster(server_round, replies)
        return self._note(server_round, replies, self._average(replies, members))

    def finish_summed(
        self, server_round: int, replies: Mapping[int, Reply], summed: Summed
    ) -> RoundClusters | None:
        """Cluster the clients whose models no party sees, and take the means that they made.

        Args:
            server_round: the round's number.
            replies: the answer of each client that gave one, without a model.
            summed: makes the means, of the clients of each cluster.

        Returns:
            As :meth:`finish`.
        """
        means = summed(self._cluster(server_round, replies))
        self._take({c: model for c, model in means.models.items() if c is not None})
        if means.models:
            sizes = [float(sum(means.examples[group].values())) for group in means.models]
            self.arrays = vectors.average([*means.models.values()], sizes)
        shares, everyone = dict[int, float](), dict[int, float]()
        self.metrics = {}
        for group, counted in means.examples.items():
            own = {node: float(size) for node, size in counted.items()}
            everyone |= own
            if group is not None:
                self.metrics[group] = mean_metrics({n: replies[n].metrics for n in own}, own)
                shares |= {node: size / sum(own.values()) for node, size in own.items()}
        self.metrics[None] = mean_metrics({n: replies[n].metrics for n in everyone}, everyone)
        return self._note(server_round, replies, Weights(shares, means.left_out))

    def _cluster(
        self, server_round: int, replies: Mapping[int, Reply]
    ) -> dict[int, tuple[int, ...]]:
        """Cluster the clients; return those of each cluster whose answers count in its mean."""
        if self.data is None:
            messages, unread = self.supports.read({n: r.support for n, r in replies.items()})
            self.clusters, self._contents = self.supports.update(
                server_round, messages, unread, self.clusters
            )
        if self.clusters is None:
            return {}
        first = self.supports.first
        return first.members(self.clusters.members, replies, self.cluster_arrays)

    def _note(
        self, server_round: int, replies: Mapping[int, Reply], weights: Weights[int]
    ) -> RoundClusters | None:
        """Log who counts less, and note it with the clusters."""
        for node, why in sorted(weights.down.items()):
            log.warning(
                "round %d: the model of client %s: %s", server_round, self.names.of(node), why
            )
        if self.clusters is not None:
            self.clusters = replace(
                self.clusters,
                names=dict(self.names.names),
                tags=dict(self.names.tags),
                replied=tuple(sorted(replies)),
                weights=weights.values,
                weighted_down=weights.down,
            )
        return self.clusters

    def _take(self, means: Mapping[int, Model]) -> None:
        """Take the models of clusters, and forget those of clusters that are gone."""
        self.cluster_arrays.update(means)
        for gone in self.cluster_arrays.keys() - self.history.clusters:
            del self.cluster_arrays[gone]

    def _average(
        self, replies: Mapping[int, Reply], members: Mapping[int, tuple[int, ...]]
    ) -> Weights[int]:
        """Average all clients and each cluster; return the shares in clusters, and reasons."""
        models = {node: reply.arrays for node, reply in replies.items()}
        wrong = misfits(models, self.arrays)
        wrong |= odd_forms({n: forms_of(r.metrics) for n, r in replies.items() if n not in wrong})
        known = RoundMembers(
            {node: model for node, model in models.items() if node not in wrong},
            {node: reply.examples for node, reply in replies.items()},
            self._contents,
            members,
        )
        found = weigh_round(known, wrong, self.rules.weights, self._verdicts(known), members)
        shares, least = found.own.values, self.rules.min_members
        enough = {
            cluster: nodes
            for cluster, nodes in members.items()
            if sum(shares.get(node, 0.0) > 0 for node in nodes) >= least
        }
        mean = partial(mean_model, like=self.arrays)
        self._take(cluster_means(known.models, enough, shares, self.names.of, mean))
        counted = {node: share for node, share in found.everyone.shares.items() if share > 0}
        if len(counted) >= least:
            whole = {node: found.everyone.values[node] for node in counted}
            self.arrays = mean(known.models, whole, self.names.of)
        groups: dict[int | None, dict[int, float]] = {None: counted}
        for cluster, nodes in members.items():
            groups[cluster] = {node: shares.get(node, 0.0) for node in nodes}
        self.metrics = {
            group: mean_metrics({node: replies[node].metrics for node in own if own[node] > 0}, own)
            for group, own in groups.items()
        }
        return found.own

    def _verdicts(self, known: RoundMembers[int]) -> Verdicts[int]:
        """How much less than others clients count, each among its whole cluster."""
        if self.judge is None:
            return Verdicts()
        starts = {node: self._sent.get(node, self.arrays) for node in known.models}
        clusters = {} if self.clusters is None else self.clusters.members
        return self.judge.judge(known.models, starts, clusters)


def mean_metrics(metrics: Mapping[int, object], weights: Mapping[int, float]) -> dict[str, float]:
    """The weighted mean of each finite number that all clients sent under one name."""
    found: dict[str, float] = {}
    sent = [each if isinstance(each, Mapping) else {} for each in metrics.values()]
    names = set.intersection(*(set(each) for each in sent)) if sent else set()
    for name in sorted(name for name in names if isinstance(name, str)):
        numbers = [real_number(each[name]) for each in sent]
        if np.isfinite(numbers).all():
            found[name] = float(np.average(numbers, weights=[weights[node] for node in metrics]))
    return found
