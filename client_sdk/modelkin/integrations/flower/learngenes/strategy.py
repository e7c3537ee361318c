"""``LearngeneStrategy``: any strategy, for a part of the layers, the learngene.

Clients keep their other layers (``LearngeneMod``). See docs/flower-learngenes.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from modelkin.client import Client
from modelkin.federation.learngenes.aggregate import MIN_MEMBERS, Aggregate, aggregate
from modelkin.federation.learngenes.layers import LayerChoice
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.node_weights import (
    RoundMembers,
    WeightName,
    Weights,
    node_weights,
)
from modelkin.integrations.flower._arrays import only
from modelkin.integrations.flower._grids import Costs, MeteredGrid, RoundCosts
from modelkin.integrations.flower._metrics import without_odd_metrics
from modelkin.integrations.flower.learngenes.files import LearngeneFiles, ReferenceOf
from modelkin.integrations.flower.learngenes.layers import part_of, values_by_name
from modelkin.integrations.flower.learngenes.mod import RECORD
from modelkin.integrations.flower.learngenes.replies import SentLayers, Values, read_layers
from modelkin.integrations.flower.learngenes.settings import (
    check_inner,
    check_tighten,
    check_weights,
)
from modelkin.integrations.flower.learngenes.shared_layers import SharedLayers
from modelkin.integrations.flower.shards.strategy import ShardedStrategy

__all__ = ["LearngeneRound", "LearngeneStrategy"]

log = logging.getLogger("modelkin.integrations")


@dataclass(frozen=True, slots=True, eq=False)
class LearngeneRound:
    """The end of one round of a learngene.

    Attributes:
        server_round: the round's number, from 1 on.
        layers: the number of shared layers.
        members: the nodes whose layers count in the strategy's learngene; around a
            ``ShardedStrategy`` see its ``RoundReport``.
        updated: the clusters whose learngene has moved.
        left_out: the reasons why other nodes do not count, by node.
    """

    server_round: int
    layers: int
    members: tuple[int, ...]
    updated: tuple[int, ...]
    left_out: Mapping[int, str]


class LearngeneStrategy(Strategy):
    """Any strategy, for a part of the layers: clients share the learngene and keep the rest.

        app = ClientApp(mods=[LearngeneMod(initial=lambda: network().state_dict(), depth=4)])
        strategy = LearngeneStrategy(FedAvg(), depth=4, save="genes/")

    Messages carry only the learngene. Each of its arrays is averaged over the clients that sent it;
    an array that fewer than ``min_members`` sent keeps its values. The strategy inside gets whole
    models: arrays that a client did not send are completed so that they move nothing. A client that
    sends other arrays, other shapes or NaN does not count, and the log says why. Inside
    ``ClusteredStrategy(..., per_cluster=True)`` each cluster has a learngene. A ``ShardedStrategy``
    inside averages only the learngene in shards.

    Without ``depth``, ``share`` or ``tensors`` the learngene is all layers but the last.

    Args:
        strategy: the wrapped strategy.
        depth: the number of layers of the learngene, from the input on.
        share: a share of the bytes: the learngene has as many layers from the input on as fit.
        tensors: shell patterns of the names of the learngene's arrays.
        exclude: shell patterns of names that are in no learngene.
        order: shell patterns of layers, from the input on, where that is not their order.
        buffers: whether the learngene has the running statistics of its layers.
        tighten: the share of the rounds in which more layers are shared: all at first, then
            linearly fewer, with clients whose mod says ``tightens=True``. .4 by default, and 0
            around a ``ShardedStrategy``, whose rounds are of one layout.
        min_members: the least number of clients to average.
        weights: ``"examples"``, or ``"equal"`` for equal weights, of metrics as well.
        save: a folder for the learngenes: a safetensors file and a manifest for each cluster and
            for all, written after each round.
        client: the client of a modelkin service, where the learngenes are published at the end of
            :meth:`start`; no failure of the service ends a run.
        space: the name of the service's space to publish in.
        model: see :class:`ClusteredStrategy`. The service's cluster with most of a cluster's
            members gets its learngene. If there is none, the service is asked to cluster the space
            as the federation does.
        reference: makes the reference of a saved file in your hub; None where the service keeps
            files.
        on_round: a function that is called after each round's training.

    Raises:
        InvalidParameter: an argument is out of its range, or two arguments exclude each other.

    Source: DFL2G, Algorithm 1 and Eq. 9.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        depth: int | None = None,
        share: float | None = None,
        tensors: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        order: Sequence[str] = (),
        buffers: bool = False,
        tighten: float | None = None,
        min_members: int = MIN_MEMBERS,
        weights: Literal["examples", "equal"] = "examples",
        save: str | os.PathLike[str] | None = None,
        client: Client | None = None,
        space: str | None = None,
        model: str = "flower/{node}",
        reference: ReferenceOf | None = None,
        on_round: Callable[[LearngeneRound], object] | None = None,
    ) -> None:
        self._choice = LayerChoice(depth, share, tensors, exclude, order)
        check_weights(weights)
        check_inner(strategy, min_members, weights)
        self.inner = strategy
        """The wrapped strategy."""
        self._sharded = strategy if isinstance(strategy, ShardedStrategy) else None
        self._tighten = check_tighten(tighten, sharded=self._sharded is not None)
        self._buffers, self._min_members = buffers, min_members
        self.weights: WeightName = weights
        """The rule of weights; a ``ClusteredStrategy`` around may set another."""
        self._contents: Mapping[int, Any] = {}
        self._files = LearngeneFiles(save, client, space, model, reference)
        self._on_round = on_round
        self.meter = Costs()
        """The counter of messages' bytes; a strategy around this one uses it, too."""
        self._num_rounds: int | None = None
        self._layers: SharedLayers | None = None
        self.left_out: dict[int, str] = {}
        """The reasons why nodes did not count in the last round, by node."""

    @property
    def costs(self) -> dict[int, RoundCosts]:
        """The bytes of each round's messages as serialised, by node, of :meth:`start`."""
        return self.meter.rounds

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *args: Any, **named: Any
    ) -> Result:
        """Run all rounds; takes the arguments of every strategy of Flower."""
        self.begin(num_rounds)
        metered = MeteredGrid(grid, self.meter)
        try:
            return super().start(metered, initial_arrays, num_rounds, *args, **named)
        finally:
            self.finish()

    def begin(self, num_rounds: int, names: ClientNames | None = None) -> None:
        """Note the number of rounds, for sharing that tightens, and the nodes' names."""
        self._num_rounds = num_rounds
        if names is not None:
            self._files.names = names

    def finish(self, asked: Mapping[str, Any] | None = None) -> None:
        """Publish the learngenes, where a service was given.

        Args:
            asked: the keywords of ``client.clusterings.create`` for the clustering to publish in.
        """
        self._files.publish(asked)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the wrapped strategy, with only the shared layers.

        Raises:
            InvalidParameter: the chosen layers are not the model's.
        """
        self.meter.begin(server_round)
        shared = SharedLayers.of(arrays, self._choice, buffers=self._buffers, after=self._layers)
        if self._num_rounds is not None:
            shared.tighten(server_round, self._num_rounds, self._tighten)
        self._layers = shared
        if self._sharded is not None:
            arrays = part_of(arrays, shared.names)
        messages = list(self.inner.configure_train(server_round, arrays, config, grid))
        for message in messages:
            shared.send(message)
        return messages

    def part(self, arrays: ArrayRecord, node: int) -> ArrayRecord:
        """The part of a whole model that a node gets in this round."""
        assert self._layers is not None
        return self._layers.part(arrays, node)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the learngene, and give the wrapped strategy whole models."""
        arrays, metrics, _ = self.aggregate_clusters(server_round, replies, {}, {}, {})
        return arrays, metrics

    def aggregate_clusters(
        self,
        server_round: int,
        replies: Iterable[Message],
        clusters: Mapping[int, Sequence[int]],
        received: Mapping[int, ArrayRecord],
        models: Mapping[int, ArrayRecord],
        contents: Mapping[int, Any] | None = None,
    ) -> tuple[ArrayRecord | None, MetricRecord | None, dict[int, ArrayRecord]]:
        """Average the learngene of all and of each cluster.

        Args:
            server_round: the number of the round, from 1.
            replies: answers to the training messages, errors among them.
            clusters: the nodes of each cluster.
            received: the whole model whose part a node got, where it is not the strategy's.
            models: the clusters' models before the round.
            contents: the nodes' supports or signatures, for weights that need them.

        Returns:
            The model and the metrics of the wrapped strategy, and the models of the clusters whose
            learngene has moved.
        """
        replies, shared, self._contents = list(replies), self._layers, contents or {}
        if shared is None or not shared.nodes:
            return None, None, {}
        members: tuple[int, ...] = ()
        if self._sharded is not None:
            found = self._aggregate_shards(
                server_round, self._sharded, shared, replies, clusters, received
            )
        else:
            sent = self._read(shared, replies)
            members = tuple(sorted(sent))
            arrays, metrics = self._aggregate(server_round, shared, replies, sent)
            found = arrays, metrics, self._aggregate_each(shared, sent, clusters, models)
        self._save(server_round, shared, found[0], found[2], clusters)
        if self._on_round is not None:
            moved, layers = tuple(sorted(found[2])), shared.num_layers
            self._on_round(LearngeneRound(server_round, layers, members, moved, self.left_out))
        return found

    def _aggregate_shards(
        self,
        server_round: int,
        sharded: ShardedStrategy,
        shared: SharedLayers,
        replies: Sequence[Message],
        clusters: Mapping[int, Sequence[int]],
        received: Mapping[int, ArrayRecord],
    ) -> tuple[ArrayRecord | None, MetricRecord | None, dict[int, ArrayRecord]]:
        """Average the learngene in shards."""
        parts = {node: part_of(arrays, shared.names) for node, arrays in received.items()}
        arrays, metrics, models = sharded.aggregate_clusters(server_round, replies, clusters, parts)
        self.left_out = dict(sharded.refused)
        whole = {cluster: shared.whole(part) for cluster, part in models.items()}
        return None if arrays is None else shared.whole(arrays), metrics, whole

    def _read(self, shared: SharedLayers, replies: Sequence[Message]) -> dict[int, SentLayers]:
        """The replies that count; other nodes are left out with a reason."""
        sent, left_out = read_layers(replies, shared.parts, shared.arrays, self._examples_name)
        self.left_out = dict(sorted(left_out.items()))
        for node, why in self.left_out.items():
            log.warning("node %s does not count: %s", self._files.names.of(node), why)
        shared.note({node: each.values for node, each in sent.items()})
        return sent

    def _aggregate(
        self,
        server_round: int,
        shared: SharedLayers,
        replies: Sequence[Message],
        sent: Mapping[int, SentLayers],
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate completed models with the wrapped strategy."""
        mean = self._mean(values_by_name(part_of(shared.arrays, shared.names)), sent)
        scaled = self._weigh(sent).scaled
        for node, each in sent.items():
            content = each.reply.content
            record, own = only(content.array_records)
            content[record] = shared.complete(own, mean)
            if self.weights != "examples":
                (metrics,) = content.metric_records.values()
                metrics[self._examples_name] = scaled[node]
        failed = [reply for reply in replies if not reply.has_content()]
        counted = [each.reply for each in sent.values()]
        arrays, found = self.inner.aggregate_train(server_round, [*counted, *failed])
        if arrays is None or not sent:
            return None, found
        return shared.whole(part_of(arrays, set(shared.names).difference(mean.kept))), found

    def _aggregate_each(
        self,
        shared: SharedLayers,
        sent: Mapping[int, SentLayers],
        clusters: Mapping[int, Sequence[int]],
        models: Mapping[int, ArrayRecord],
    ) -> dict[int, ArrayRecord]:
        """The models of clusters whose learngene has moved; smaller clusters keep theirs."""
        found: dict[int, ArrayRecord] = {}
        for cluster, nodes in clusters.items():
            own = {node: sent[node] for node in nodes if node in sent}
            if len(own) < self._min_members:
                log.info(
                    "cluster %d keeps its learngene: %d members take part, %d at least are "
                    "averaged",
                    cluster,
                    len(own),
                    self._min_members,
                )
                continue
            before = models.get(cluster, shared.arrays)
            mean = self._mean(values_by_name(part_of(before, shared.names)), own)
            moved = {n: Array(v) for n, v in mean.tensors.items() if n not in mean.kept}
            found[cluster] = ArrayRecord({n: moved.get(n, old) for n, old in before.items()})
        return found

    def _mean(self, before: Values, sent: Mapping[int, SentLayers]) -> Aggregate:
        weights, values = self._weigh(sent), {node: each.values for node, each in sent.items()}
        return aggregate(before, values, examples=weights.values, min_members=self._min_members)

    def _weigh(self, sent: Mapping[int, SentLayers]) -> Weights[int]:
        examples = {node: each.examples for node, each in sent.items()}
        known: RoundMembers[int] = RoundMembers({}, examples, self._contents)
        return node_weights(self.weights)(list(sent), known)

    def _save(
        self,
        server_round: int,
        shared: SharedLayers,
        arrays: ArrayRecord | None,
        models: Mapping[int, ArrayRecord],
        clusters: Mapping[int, Sequence[int]],
    ) -> None:
        """Save the learngenes that have moved."""
        names = shared.learngene_names
        counted = [node for node in shared.nodes if node not in self.left_out]
        if arrays is not None and len(counted) >= self._min_members:
            self._files.save("all", part_of(arrays, names), server_round, counted)
        for cluster, model in models.items():
            own = [node for node in counted if node in clusters[cluster]]
            self._files.save(cluster, part_of(model, names), server_round, own)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the wrapped strategy, with only the learngene."""
        messages = list(self.inner.configure_evaluate(server_round, arrays, config, grid))
        assert self._layers is not None
        for message in messages:
            self._layers.cut(message)
        return messages

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The wrapped strategy's aggregate, without nodes that refused or have odd metrics."""
        counted = [
            reply
            for reply in replies
            if not (reply.has_content() and RECORD in reply.content.config_records)
        ]
        return self.inner.aggregate_evaluate(
            server_round, without_odd_metrics(server_round, counted)
        )

    def summary(self) -> None:
        """Log the settings, and those of the wrapped strategy."""
        log.info(
            "learngene: %s, tighten=%g, min_members=%d, weights=%r",
            self._choice,
            self._tighten,
            self._min_members,
            self.weights,
        )
        self.inner.summary()

    @property
    def _examples_name(self) -> str:
        return str(getattr(self.inner, "weighted_by_key", "num-examples"))
