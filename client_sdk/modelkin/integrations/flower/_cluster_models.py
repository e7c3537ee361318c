"""``ClusterModels``: the model of each cluster around a strategy, with ``per_cluster``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from modelkin.federation.layouts import misfit
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.cluster_history import RoundClusters
from modelkin.integrations.federation.cluster_means import (
    Mean,
    Model,
    cluster_means,
    mean_model,
    misfits,
    rounded,
)
from modelkin.integrations.federation.first_supports import FirstSupports
from modelkin.integrations.federation.kin_robust import KinJudge, KinRobust, Verdicts
from modelkin.integrations.federation.node_weights import (
    RoundMembers,
    WeightName,
    Weights,
    node_weights,
)
from modelkin.integrations.federation.round_weights import weigh_round
from modelkin.integrations.flower._arrays import only, values_of
from modelkin.integrations.flower._replies import judge_models, read_models
from modelkin.integrations.flower._wrapped_strategies import averages_as_sent
from modelkin.integrations.flower.adapters import AdapterStrategy
from modelkin.integrations.flower.learngenes.layers import values_by_name
from modelkin.integrations.flower.learngenes.strategy import LearngeneStrategy
from modelkin.integrations.flower.mixing import COMMON
from modelkin.integrations.flower.shards.strategy import ShardedStrategy

__all__ = ["ClusterModels"]

log = logging.getLogger("modelkin.integrations")

Contents = Mapping[int, Any]


class ClusterModels:
    """The model of each cluster: which clients get it, and the mean that it becomes.

    Args:
        strategy: the wrapped strategy.
        names: the nodes' names, by whose order means are summed.
        first: says which members count.
        weights: the rule of the weights of a cluster's members, and of all.
        robust: when a client's update does not count; None where all count.
        per_cluster: whether clusters have models.
    """

    def __init__(
        self,
        strategy: Strategy,
        names: ClientNames,
        first: FirstSupports[ArrayRecord],
        weights: WeightName,
        robust: KinRobust | None,
        *,
        per_cluster: bool,
    ) -> None:
        self._inner, self._names, self._first = strategy, names, first
        self._per_cluster = per_cluster
        self._weights: WeightName = weights
        if isinstance(strategy, LearngeneStrategy) and weights != "examples":
            strategy.weights = weights
        means = strategy.means if isinstance(strategy, AdapterStrategy) else None
        self._has_forms = means is not None  # each node has an adapter of its own rank
        self._misfits = self._other_than_sent if means is None else means.misfits
        self._mean: Mean = self._mean_as_sent if means is None else means.mean
        self._judge = None if robust is None else KinJudge[int](robust, names.of)
        self._sent, self._received = ArrayRecord(), dict[int, ArrayRecord]()
        self.arrays: dict[int, ArrayRecord] = {}
        """The model of each cluster."""

    def begin(self, arrays: ArrayRecord, messages: Sequence[Message]) -> None:
        """Begin a round in which no node has got another model than the strategy's yet.

        Args:
            arrays: the strategy's model.
            messages: those of the strategy, which may send a part of its model.
        """
        self._sent, self._received = arrays, {}
        carried = [] if self._has_forms else [m.content.array_records for m in messages[:1]]
        if [1] == [len(records) for records in carried]:
            (self._sent,) = carried[0].values()

    def give(self, content: RecordDict, node: int, own: ArrayRecord, *, beside: bool) -> None:
        """Put a node's own model into its message, in place of the strategy's or beside it."""
        self._received[node] = own
        inner, names = self._inner, list(content.array_records)
        if isinstance(inner, LearngeneStrategy | AdapterStrategy):
            own = inner.part(own, node)
        if beside:
            _, content[COMMON] = only(content.array_records)
        for name in names:
            content[name] = own

    def aggregate(
        self,
        server_round: int,
        replies: Sequence[Message],
        found: RoundClusters | None,
        contents: Contents,
    ) -> tuple[ArrayRecord | None, MetricRecord | None, RoundClusters | None]:
        """Aggregate with the wrapped strategy, and average each cluster.

        Args:
            server_round: the round's number.
            replies: answers to the training messages, errors among them.
            found: the round's clusters, if there are any.
            contents: supports or signatures of nodes.

        Returns:
            What the wrapped strategy returns, and the clusters with their members' weights.
        """
        inner, members = self._inner, dict[int, tuple[int, ...]]()
        if found is not None and self._per_cluster:
            members = self._first.members(found.members, found.replied, self.arrays)
        if isinstance(inner, LearngeneStrategy):
            arrays, metrics, models = inner.aggregate_clusters(
                server_round, replies, members, self._received, self.arrays, contents
            )
        elif isinstance(inner, ShardedStrategy):
            arrays, metrics, models = inner.aggregate_clusters(
                server_round, replies, members, self._received
            )
            for cluster, nodes in ({} if found is None else found.members).items():
                if len(nodes) < inner.min_members:
                    self.arrays.pop(cluster, None)
        elif not self._per_cluster and self._weights == "examples" and self._judge is None:
            models, wrong = {}, self._bad_replies(server_round, replies)
            arrays, metrics = inner.aggregate_train(
                server_round,
                [r for r in self._ordered(replies) if r.metadata.src_node_id not in wrong],
            )
            found = None if found is None else replace(found, weighted_down=wrong)
        else:
            clusters = {} if found is None else found.members
            known, wrong = self._read(replies, clusters, contents)
            weights, counted, models = self._average(server_round, members, replies, known, wrong)
            arrays, metrics = inner.aggregate_train(server_round, counted)
            arrays = None if arrays is None else self._typed_as_sent(arrays)
            if found is not None:
                found = replace(found, weights=weights.values, weighted_down=weights.down)
        self.arrays.update(models)
        return arrays, metrics, found

    def _bad_replies(self, server_round: int, replies: Sequence[Message]) -> dict[int, str]:
        """Why some replies would end the round of a strategy that averages as FedAvg does."""
        if not averages_as_sent(self._inner):
            return {}
        like = values_by_name(self._sent)
        examples, wrong = judge_models(replies, self._examples_name, lambda own: misfit(own, like))
        weights = node_weights("examples")([*examples], RoundMembers({}, examples))
        wrong |= weights.down
        for node, why in sorted(wrong.items()):
            who = self._names.of(node)
            log.warning("round %d: client %s is left out: %s", server_round, who, why)
        return wrong

    def keep_only(self, clusters: set[int]) -> None:
        """Drop the models of all clusters but these."""
        for gone in self.arrays.keys() - clusters:
            del self.arrays[gone]

    def _average(
        self,
        server_round: int,
        members: Mapping[int, tuple[int, ...]],
        replies: Sequence[Message],
        known: RoundMembers[int],
        wrong: Mapping[int, str],
    ) -> tuple[Weights[int], list[Message], dict[int, ArrayRecord]]:
        """The means of clusters.

        Returns:
            The share of each node in its cluster; the replies that count, and failures, which the
            wrapped strategy reports; and the model of each cluster of which a member counts.
        """
        clusters = members if self._per_cluster else None
        found = weigh_round(known, wrong, self._weights, self._verdicts(known), clusters)
        for node, why in sorted(found.own.down.items()):
            how = "weighted down" if found.own.values.get(node, 0.0) > 0 else "left out"
            who = self._names.of(node)
            log.warning("round %d: client %s is %s: %s", server_round, who, how, why)
        means = cluster_means(known.models, members, found.own.values, self._names.of, self._mean)
        models = {
            cluster: ArrayRecord({name: Array(each) for name, each in mean.items()})
            for cluster, mean in means.items()
        }
        return found.own, self._counted(replies, found.everyone), models

    def _verdicts(self, known: RoundMembers[int]) -> Verdicts[int]:
        """How much less than others clients count, by the models that they began with."""
        if self._judge is None:
            return Verdicts()
        begun = {node: self._received.get(node, self._sent) for node in known.models}
        models = {id(record): values_by_name(record) for record in begun.values()}
        starts = {node: models[id(record)] for node, record in begun.items()}
        return self._judge.judge(known.models, starts, known.clusters)

    def _counted(self, replies: Sequence[Message], weights: Weights[int]) -> list[Message]:
        """Failures, and the replies that count in the order of their clients' names.

        They state weights in place of examples, where these differ: the wrapped strategy averages
        models and metrics by them. Those by other rules than examples have a mean of 1.
        """
        counted, scaled = list[Message](), weights.scaled
        for reply in self._ordered(replies):
            if not reply.has_content():
                counted.append(reply)
            elif (weight := scaled.get(reply.metadata.src_node_id, 0.0)) > 0:
                counted.append(reply)
                node, (metrics,) = reply.metadata.src_node_id, reply.content.metric_records.values()
                if self._weights != "examples":
                    metrics[self._examples_name] = weight
                elif node in weights.down:
                    metrics[self._examples_name] = weights.values[node]
        return counted

    def _ordered(self, replies: Sequence[Message]) -> list[Message]:
        """Replies in the order of their clients' names, in which all means are summed."""
        return sorted(replies, key=lambda each: self._names.of(each.metadata.src_node_id))

    def _read(
        self,
        replies: Sequence[Message],
        clusters: Mapping[int, tuple[int, ...]],
        contents: Contents,
    ) -> tuple[RoundMembers[int], dict[int, str]]:
        """What the replies hold, and the reasons why some models do not count."""
        models, examples, wrong = read_models(replies, self._examples_name, self._misfits)
        return RoundMembers(models, examples, contents, clusters), wrong

    def _other_than_sent(self, models: Mapping[int, Model]) -> dict[int, str]:
        return misfits(models, values_by_name(self._sent))

    def _mean_as_sent(
        self,
        models: Mapping[int, Model],
        weights: Mapping[int, float],
        name_of: Callable[[int], str],
    ) -> dict[str, Any]:
        return mean_model(models, weights, name_of, values_by_name(self._sent))

    def _typed_as_sent(self, arrays: ArrayRecord) -> ArrayRecord:
        """A model of the strategy in the types sent: a client's float64 would widen all others."""
        found = dict(arrays)
        for name, sent in self._sent.items():
            if name in found and found[name].dtype != sent.dtype:
                found[name] = Array(rounded(values_of(found[name]), np.dtype(sent.dtype)))
        return ArrayRecord(found)

    @property
    def _examples_name(self) -> str:
        return str(getattr(self._inner, "weighted_by_key", "num-examples"))
