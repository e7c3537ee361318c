"""``LearngeneStrategy``: any strategy, on a part of the layers, the learngene.

Clients keep their other layers (``LearngeneMod``). See docs/training.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from modelkin.client import Client
from modelkin.core.learngenes.aggregate import (
    MIN_MEMBERS,
    aggregate,
    check_min_members,
)
from modelkin.core.learngenes.layers import LayerChoice, tightened_depth
from modelkin.errors import InvalidParameter
from modelkin.integrations.flower._arrays import only
from modelkin.integrations.flower._grids import Costs, MeteredGrid, RoundCosts
from modelkin.integrations.flower._learngene_files import LearngeneFiles, ReferenceOf
from modelkin.integrations.flower._learngene_layers import (
    Learngene,
    layout_of,
    part_of,
    values_by_name,
)
from modelkin.integrations.flower._learngene_mod import RECORD
from modelkin.integrations.flower._learngene_replies import SentLayers, Values, read_layers
from modelkin.integrations.flower.sharding import ShardedStrategy

__all__ = ["LearngeneRound", "LearngeneStrategy"]

log = logging.getLogger("modelkin.integrations")


@dataclass(frozen=True, slots=True, eq=False)
class LearngeneRound:
    """How one round of a learngene ended.

    Attributes:
        server_round: the round's number, from 1 on.
        layers: how many layers were shared.
        members: the nodes whose layers count in the strategy's learngene; where shards are inside,
            the ``RoundReport`` of these says who.
        updated: the clusters whose learngene has moved.
        left_out: why another node does not count, by node.
    """

    server_round: int
    layers: int
    members: tuple[int, ...]
    updated: tuple[int, ...]
    left_out: Mapping[int, str]


class LearngeneStrategy(Strategy):
    """Any strategy, on a part of the layers: clients share the learngene and keep the others.

        app = ClientApp(mods=[LearngeneMod(initial=lambda: network().state_dict(), depth=4)])
        strategy = LearngeneStrategy(FedAvg(), depth=4, save="genes/")

    Messages carry the learngene alone. Each of its arrays is averaged over the clients that sent
    it; one that fewer than ``min_members`` sent keeps its values. The strategy inside gets whole
    models: what a client did not send is completed so that it moves nothing. A client that sends
    other arrays, other shapes or NaN does not count, and the log says why. Inside
    ``ClusteredStrategy(..., per_cluster=True)`` each cluster has a learngene. A ``ShardedStrategy``
    inside averages the learngene alone in shards.

    Without ``depth``, ``share`` or ``tensors`` the learngene is all layers but the last.

    Args:
        strategy: the wrapped strategy.
        depth: how many layers the learngene has, from the input on.
        share: of the bytes: as many layers from the input on as fit.
        tensors: shell patterns of the names of its arrays.
        exclude: shell patterns of names that are in no learngene.
        order: shell patterns of layers, from the input on, where that is not their order.
        buffers: whether it has the running statistics of its layers.
        tighten: the share of the rounds in which more layers are shared: all at first, then
            linearly fewer, with clients whose mod says ``tightens=True``. .4 by default, and 0
            around a ``ShardedStrategy``, whose rounds are of one layout.
        min_members: fewer clients are not averaged.
        weights: ``"examples"``, or ``"equal"`` for equal weights, of metrics as well.
        save: a folder for the learngenes, a safetensors file and a manifest of each cluster and of
            all, written after each round.
        client: of a modelkin service, where the learngenes are published at the end of
            :meth:`start`; no failure of the service ends a run.
        space: to publish in.
        model: the name of a client's model there, in which ``{node}`` stands for its node id. The
            service's cluster of most of a cluster's members gets its learngene.
        reference: makes the reference of a saved file in your hub; None where the service keeps
            files.
        on_round: called after each round's training.

    Raises:
        InvalidParameter: an argument is out of its range, or two of them exclude each other.

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
        check_min_members(min_members)
        if weights not in ("examples", "equal"):
            raise InvalidParameter(
                f"weights must be 'examples' or 'equal', not {weights!r}", field="weights"
            )
        self.inner = strategy
        """The wrapped strategy."""
        self._sharded = strategy if isinstance(strategy, ShardedStrategy) else None
        self._tighten = _checked_tighten(tighten, self._sharded)
        if self._sharded is not None:
            _check_sharded(self._sharded, min_members, weights)
        if hasattr(strategy, "cluster_of"):
            raise InvalidParameter(
                "put LearngeneStrategy inside ClusteredStrategy, not around it", field="strategy"
            )
        self._buffers, self._min_members, self._weights = buffers, min_members, weights
        self._files = LearngeneFiles(save, client, space, model, reference)
        self._on_round = on_round
        self.meter = Costs()
        """Counts the bytes of messages; one around this strategy counts there, too."""
        self._num_rounds: int | None = None
        self._arrays, self._layers = ArrayRecord(), 0
        self._learngene: Learngene | None = None
        self._names: tuple[str, ...] = ()
        self._sent: dict[int, tuple[str, ...]] = {}
        self._tightens: dict[int, bool] = {}
        self.left_out: dict[int, str] = {}
        """Why a node did not count in the last round, by node."""

    @property
    def costs(self) -> dict[int, RoundCosts]:
        """The bytes of each round's messages as serialised, by node, of :meth:`start`."""
        return self.meter.rounds

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *args: Any, **named: Any
    ) -> Result:
        """Run all rounds; arguments as of every strategy of Flower."""
        self.begin(num_rounds)
        metered = MeteredGrid(grid, self.meter)
        try:
            return super().start(metered, initial_arrays, num_rounds, *args, **named)
        finally:
            self.finish()

    def begin(self, num_rounds: int) -> None:
        """Note how many rounds there will be, for sharing that tightens."""
        self._num_rounds = num_rounds

    def finish(self) -> None:
        """Publish the learngenes, where a service was given."""
        self._files.publish()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the wrapped strategy, with the shared layers alone.

        Raises:
            InvalidParameter: the layers that were chosen are not the model's.
        """
        self.meter.begin(server_round)
        self._arrays, self._sent = arrays, {}
        self._learngene = Learngene.of(layout_of(arrays), self._choice, buffers=self._buffers)
        self._names = self._shared(server_round, self._learngene)
        if self._sharded is not None:
            arrays = part_of(arrays, self._names)
        messages = list(self.inner.configure_train(server_round, arrays, config, grid))
        for message in messages:
            self._cut(message)
            node = message.metadata.dst_node_id
            self._sent[node] = self._names_for(node)
        return messages

    def _shared(self, server_round: int, learngene: Learngene) -> tuple[str, ...]:
        """The names that are shared in a round."""
        depth, others = len(learngene.layers), learngene.others
        extra = 0
        if self._num_rounds is not None:
            total = depth + len(others)
            share = self._tighten
            extra = tightened_depth(depth, total, server_round - 1, self._num_rounds, share) - depth
        self._layers = depth + extra
        return (*learngene.names, *(name for layer in others[:extra] for name in layer))

    def _names_for(self, node: int) -> tuple[str, ...]:
        """A node that does not send more than the learngene gets no more."""
        assert self._learngene is not None
        return self._names if self._tightens.get(node, True) else self._learngene.names

    def part(self, arrays: ArrayRecord, node: int) -> ArrayRecord:
        """What a node gets of a whole model in this round."""
        return part_of(arrays, self._names_for(node))

    def _cut(self, message: Message) -> None:
        content = RecordDict(dict(message.content))  # messages of one round share theirs
        for name, arrays in list(content.array_records.items()):
            content[name] = self.part(arrays, message.metadata.dst_node_id)
        message.content = content

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
    ) -> tuple[ArrayRecord | None, MetricRecord | None, dict[int, ArrayRecord]]:
        """Average the learngene of all and of each cluster.

        Args:
            server_round: the round.
            replies: to the training messages.
            clusters: the nodes of each.
            received: the whole model whose part a node got, where it is not the strategy's.
            models: of the clusters, before.

        Returns:
            The model and the metrics of the wrapped strategy, and the models of the clusters whose
            learngene has moved.
        """
        replies = list(replies)
        if self._learngene is None or not self._sent:
            return None, None, {}
        if self._sharded is not None:
            found = self._aggregate_shards(server_round, self._sharded, replies, clusters, received)
            members: tuple[int, ...] = ()
        else:
            sent = self._read(replies)
            members = tuple(sorted(sent))
            arrays, metrics = self._aggregate(server_round, replies, sent)
            moved = self._aggregate_each(sent, clusters, models)
            found = arrays, metrics, moved
        self._end(server_round, members, found[0], found[2], clusters)
        return found

    def _aggregate_shards(
        self,
        server_round: int,
        sharded: ShardedStrategy,
        replies: Sequence[Message],
        clusters: Mapping[int, Sequence[int]],
        received: Mapping[int, ArrayRecord],
    ) -> tuple[ArrayRecord | None, MetricRecord | None, dict[int, ArrayRecord]]:
        """The averages in shards, which are of the learngene alone."""
        parts = {node: part_of(arrays, self._names) for node, arrays in received.items()}
        arrays, metrics, models = sharded.aggregate_clusters(server_round, replies, clusters, parts)
        self.left_out = dict(sharded.refused)
        whole = {cluster: self._whole(part) for cluster, part in models.items()}
        return None if arrays is None else self._whole(arrays), metrics, whole

    def _read(self, replies: Sequence[Message]) -> dict[int, SentLayers]:
        """The replies that count; the others are left out with a reason."""
        asked = {node: part_of(self._arrays, names) for node, names in self._sent.items()}
        sent, left_out = read_layers(replies, asked, self._arrays, self._weighted_by)
        self._note(left_out, sent)
        return sent

    def _note(self, left_out: dict[int, str], sent: Mapping[int, SentLayers]) -> None:
        self.left_out = dict(sorted(left_out.items()))
        for node, why in self.left_out.items():
            log.warning("node %d does not count: %s", node, why)
        assert self._learngene is not None
        own = set(self._learngene.names)
        for node, each in sent.items():
            if set(self._sent[node]) != own:
                self._tightens[node] = not own.issuperset(each.values)

    def _aggregate(
        self, server_round: int, replies: Sequence[Message], sent: Mapping[int, SentLayers]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """What the wrapped strategy makes of completed models."""
        before = values_by_name(part_of(self._arrays, self._names))
        mean = self._mean(before, sent)
        filled = {name: Array(values) for name, values in mean.tensors.items()}
        for each in sent.values():
            self._complete(each, filled, set(mean.kept))
        failed = [reply for reply in replies if not reply.has_content()]
        counted = [each.reply for each in sent.values()]
        arrays, metrics = self.inner.aggregate_train(server_round, [*counted, *failed])
        if arrays is None or not sent:
            return None, metrics
        return self._whole(part_of(arrays, set(self._names).difference(mean.kept))), metrics

    def _complete(self, each: SentLayers, filled: Mapping[str, Array], kept: set[str]) -> None:
        """Make a reply one of a whole model: what it does not have moves nothing."""
        content = each.reply.content
        record, own = only(content.array_records)
        found: dict[str, Array] = {}
        for name, old in self._arrays.items():
            if name in kept or name not in filled:
                found[name] = old
            else:
                found[name] = own[name] if name in own else filled[name]
        content[record] = ArrayRecord(found)
        if self._weights == "equal":
            (metrics,) = content.metric_records.values()
            metrics[self._weighted_by] = 1

    def _aggregate_each(
        self,
        sent: Mapping[int, SentLayers],
        clusters: Mapping[int, Sequence[int]],
        models: Mapping[int, ArrayRecord],
    ) -> dict[int, ArrayRecord]:
        """The models of clusters whose learngene has moved; smaller ones keep theirs."""
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
            before = models.get(cluster, self._arrays)
            mean = self._mean(values_by_name(part_of(before, self._names)), own)
            moved = {n: Array(v) for n, v in mean.tensors.items() if n not in mean.kept}
            found[cluster] = ArrayRecord({n: moved.get(n, old) for n, old in before.items()})
        return found

    def _mean(self, before: Values, sent: Mapping[int, SentLayers]) -> Any:
        examples = {node: each.examples for node, each in sent.items()}
        return aggregate(
            before,
            {node: each.values for node, each in sent.items()},
            examples=examples if self._weights == "examples" else None,
            min_members=self._min_members,
        )

    def _whole(self, part: ArrayRecord) -> ArrayRecord:
        """A whole model, with some arrays in the types that they had."""
        found: dict[str, Array] = {}
        for name, old in self._arrays.items():
            if name not in part:
                found[name] = old
            elif part[name].dtype == old.dtype:
                found[name] = part[name]
            else:
                found[name] = Array(part[name].numpy().astype(np.dtype(old.dtype)))
        return ArrayRecord(found)

    def _end(
        self,
        server_round: int,
        members: tuple[int, ...],
        arrays: ArrayRecord | None,
        models: Mapping[int, ArrayRecord],
        clusters: Mapping[int, Sequence[int]],
    ) -> None:
        """Save what has moved, and report."""
        assert self._learngene is not None
        names = self._learngene.names
        counted = [node for node in self._sent if node not in self.left_out]
        if arrays is not None and len(counted) >= self._min_members:
            self._files.save("all", part_of(arrays, names), server_round, counted)
        for cluster, model in models.items():
            own = [node for node in counted if node in clusters[cluster]]
            self._files.save(cluster, part_of(model, names), server_round, own)
        if self._on_round is not None:
            self._on_round(
                LearngeneRound(
                    server_round, self._layers, members, tuple(sorted(models)), self.left_out
                )
            )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the wrapped strategy, with the learngene alone."""
        messages = list(self.inner.configure_evaluate(server_round, arrays, config, grid))
        for message in messages:
            self._cut(message)
        return messages

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The wrapped strategy's aggregate; nodes that refused do not count."""
        counted = [
            reply
            for reply in replies
            if not (reply.has_content() and RECORD in reply.content.config_records)
        ]
        return self.inner.aggregate_evaluate(server_round, counted)

    def summary(self) -> None:
        """Log the settings, and those of the wrapped strategy."""
        log.info(
            "learngene: %s, tighten=%g, min_members=%d, weights=%r",
            self._choice,
            self._tighten,
            self._min_members,
            self._weights,
        )
        self.inner.summary()

    @property
    def _weighted_by(self) -> str:
        return str(getattr(self.inner, "weighted_by_key", "num-examples"))


def _checked_tighten(tighten: Any, sharded: ShardedStrategy | None) -> float:
    if tighten is None:
        return 0.0 if sharded is not None else 0.4
    if isinstance(tighten, bool) or not isinstance(tighten, int | float) or not 0 <= tighten <= 1:
        raise InvalidParameter(f"tighten must be 0 to 1, not {tighten!r}", field="tighten")
    if tighten and sharded is not None:
        raise InvalidParameter(
            "tighten cannot be combined with a ShardedStrategy inside: shards are of one layout in "
            "all rounds; use tighten=0",
            field="tighten",
        )
    return float(tighten)


def _check_sharded(sharded: ShardedStrategy, min_members: int, weights: str) -> None:
    if sharded.min_members < min_members:
        raise InvalidParameter(
            f"min_members is {min_members}, and {sharded.min_members} of the ShardedStrategy "
            f"inside: give it as many",
            field="min_members",
        )
    if weights != "examples":
        raise InvalidParameter(
            "weights='equal' cannot be combined with a ShardedStrategy inside: members weigh their "
            "own updates by their examples",
            field="weights",
        )
