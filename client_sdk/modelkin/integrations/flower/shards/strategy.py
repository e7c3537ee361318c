"""``ShardedStrategy``: any strategy that averages, without a server that sees a client's model.

The clients of a round send shards of their updates to aggregators among them, sealed and by default
concealed, through the server, which relays them and gets the average. See docs/flower-shards.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from modelkin.core.indices import MAX_PARAMETERS
from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import MIN_MEMBERS
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.shards.members import ShardMembers
from modelkin.integrations.federation.shards.rounds import ShardRound
from modelkin.integrations.flower import _arrays
from modelkin.integrations.flower._metrics import without_odd_metrics
from modelkin.integrations.flower.shards.grid import ShardGrid
from modelkin.integrations.flower.shards.leader import ShardLeader
from modelkin.integrations.flower.shards.records import RECORD
from modelkin.integrations.flower.shards.settings import check_strategy, make_plan

__all__ = ["RoundReport", "ShardedStrategy"]

log = logging.getLogger("modelkin.integrations")


@dataclass(frozen=True, slots=True, eq=False)
class RoundReport:
    """The end of one round, or of one cluster's part of the round.

    Attributes:
        server_round: the round's number, from 1 on.
        members: the nodes in the average; none if nothing changes.
        refused: the reasons why other nodes do not count, by node; of nodes that take part in no
            average, in the last report of a round.
        kept: the reasons why shards keep their values, by shard.
        attempts: the number of times that cells were combined, or asked for.
        bytes: the bytes of sealed cells received and relayed, and of results received.
        digest: the roster's digest, in hexadecimal; every member logs the same.
        cluster: the cluster of the members; None for all, or for members of no cluster.
        lost: the reasons why aggregators gave no result, or another one than most, by node.
        peak: R of concealed sums, a power of two; a client that reports a false one makes the
            average coarse, to half of ``2^-30`` of R for each member.
        named: the names of the members, in their order, or their nodes' ids. Names are known
            inside a ``ClusteredStrategy``.
        skipped: the reasons why clusters did not average alone, by their numbers; alike in all
            reports of a round. Such a cluster keeps its model, or has none yet, and its members
            that replied are averaged with members of no cluster.
        staleness: how many rounds late the updates of members are, by node, where they are late.
    """

    server_round: int
    members: tuple[int, ...]
    refused: Mapping[int, str]
    kept: Mapping[int, str]
    attempts: int
    bytes: int
    digest: str
    cluster: int | None = None
    lost: Mapping[int, str] = field(default_factory=dict)
    peak: float | None = None
    named: tuple[str, ...] = ()
    skipped: Mapping[int, str] = field(default_factory=dict)
    staleness: Mapping[int, int] = field(default_factory=dict)


class ShardedStrategy(Strategy):
    """Any strategy that averages, with averages in shards: no other party sees a client's model.

        app = ClientApp(mods=[ShardMod()])
        strategy = ShardedStrategy(FedAvg(), aggregators=4, on_round=print)

    The wrapped strategy samples the clients, and gets one reply a round: the average model, with
    the sum of the examples. Its ``train_metrics_aggr_fn`` gets the metrics of all members. Nothing
    changes in a round of fewer than ``min_members``; a shard whose aggregator gives no result keeps
    its values.

    Args:
        strategy: FedAvg or a strategy derived from it that needs only the average.
        aggregators: A, the number of shards, and of clients that combine one each.
        conceal: whether aggregators see only sums, by pairwise masks.
        one_in: c; one value in c of a shard is sent in a round.
        masks: ``"one"`` if all clients keep the same values in a round, else ``"own"``.
        quantize: ``"int8"`` to round the sent values at random.
        rule: ``"mean"``, ``"median"`` or ``"trimmed_mean"``, by coordinate.
        min_members: the least number of clients to average.
        replicas: the number of aggregators of each shard. The result that most of them sent, equal
            to the bit, is taken: of two both must agree, and of three one may be lost or lie.
        patience: seconds to wait for nodes to join, for cells, and for aggregators.
        on_round: a function that is called after each round's training, once for each cluster that
            averages alone.

    Raises:
        InvalidParameter: an argument is out of its range, two arguments exclude each other, or the
            strategy cannot be wrapped.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        aggregators: int,
        conceal: bool = True,
        one_in: int = 1,
        masks: str = "one",
        quantize: str | None = None,
        rule: str = "mean",
        min_members: int = MIN_MEMBERS,
        replicas: int = 1,
        patience: float = 60.0,
        on_round: Callable[[RoundReport], object] | None = None,
    ) -> None:
        self._inner = check_strategy(strategy)
        self._settings: dict[str, Any] = {
            "shards": aggregators,
            "conceal": conceal,
            "one_in": one_in,
            "masks": masks,
            "quantize": quantize,
            "rule": rule,
            "min_members": min_members,
            "replicas": replicas,
        }
        make_plan(MAX_PARAMETERS, self._settings)
        if not isinstance(patience, int | float) or not 0 < patience < float("inf"):
            raise InvalidParameter(
                f"patience must be a number of seconds above 0, not {patience!r}", field="patience"
            )
        self._patience, self._on_round = patience, on_round
        self._members: ShardMembers | None = None
        self._leader: ShardLeader | None = None
        self._arrays, self._sampled = ArrayRecord(), dict[int, ArrayRecord]()
        self._outside: dict[int, str] = {}
        self._skipped: dict[int, str] = {}
        self.refused: dict[int, str] = {}
        """The reasons why nodes did not count in the last round, by node."""
        self.names = ClientNames()
        """The names of the nodes, noted by a ``ClusteredStrategy`` around this one."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the wrapped strategy, with the roster; new nodes join before.

        Raises:
            InvalidParameter: the model cannot be averaged in shards, or there are too few nodes.
        """
        _arrays.check_arrays(arrays)
        plan = make_plan(_arrays.num_values(arrays), self._settings)
        if self._members is None or self._members.plan != plan:
            self._members = ShardMembers(plan)
        shards = ShardGrid(grid, self._members, self._patience)
        if not self._members.nodes:  # later, shards of lost aggregators keep their values
            shards.wait_for(plan.shards)
        self._arrays, self._sampled, self._leader = arrays, {}, None
        messages = list(self._inner.configure_train(server_round, arrays, config, shards))
        self._outside = dict(shards.outside)
        if not messages:
            return []
        if not any(map(self._members.has, shards.present())) and self._outside:
            raise shards.none_joined()
        roster, number = self._members.begin(shards.present())
        self._leader = ShardLeader(self._members, shards, roster, number, self._examples_name)
        return [message for message in messages if self._address(message, self._leader)]

    def _address(self, message: Message, leader: ShardLeader) -> bool:
        """Add the roster to a training message; False if its node has not joined."""
        assert self._members is not None
        node = message.metadata.dst_node_id
        if not self._members.has(node):
            return False
        _, self._sampled[node] = _arrays.only(message.content.array_records)
        content = RecordDict(dict(message.content))  # messages of a round share their content
        content[RECORD] = leader.training(node)
        message.content = content
        return True

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average in shards, and give the wrapped strategy the average."""
        arrays, metrics, _ = self.aggregate_clusters(server_round, replies, {}, {})
        return arrays, metrics

    def aggregate_clusters(
        self,
        server_round: int,
        replies: Iterable[Message],
        clusters: Mapping[int, Sequence[int]],
        received: Mapping[int, ArrayRecord],
    ) -> tuple[ArrayRecord | None, MetricRecord | None, dict[int, ArrayRecord]]:
        """Average each cluster alone, and give the wrapped strategy the average of all.

        Members of no cluster, or of a cluster below ``min_members``, are averaged together. Each
        member is in only one sum: two sums that differ by one member would show its values.

        Args:
            server_round: the number of the round, from 1.
            replies: answers to the training messages, errors among them.
            clusters: the nodes of each cluster.
            received: the model that a node trained, where it is not the strategy's.

        Returns:
            The model and the metrics of the wrapped strategy, and each cluster's model.
        """
        leader, replies = self._leader, list(replies)
        if leader is None:
            return None, None, {}
        leader.take(self._sampled, replies)
        self.refused = {}
        self._skipped = leader.too_few(server_round, clusters)
        done = self._average(leader, clusters, {**self._sampled, **received})
        for part in done:
            self._report(server_round, leader, part, is_last=part is done[-1])
        models = {part.cluster: part.model for part in done if part.model is not None}
        arrays, metrics = self._aggregate(server_round, leader, replies, done)
        return arrays, metrics, {c: model for c, model in models.items() if c is not None}

    def _average(
        self,
        leader: ShardLeader,
        clusters: Mapping[int, Sequence[int]],
        received: Mapping[int, ArrayRecord],
    ) -> list[_Part]:
        """Average each large enough cluster, and all other members together."""
        found = list[_Part]()
        for cluster, current in leader.lead_groups(clusters, self._skipped):
            part, update = _Part(cluster, current), current.update
            if update is not None:
                weights = [leader.trained[place].examples for place in current.members]
                bases = [received[leader.node(place)] for place in current.members]
                part.model = _arrays.add_update(_arrays.average(bases, weights), update)
                part.examples = sum(weights)
            found.append(part)
        return found

    def _aggregate(
        self,
        server_round: int,
        leader: ShardLeader,
        replies: Sequence[Message],
        done: Sequence[_Part],
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the average with the wrapped strategy, which gets it as one reply."""
        counted = [part for part in done if part.model is not None]
        if not counted:
            return None, None
        members = sorted(place for part in counted for place in part.round.members)
        key, inner = self._examples_name, self._inner
        metrics = inner.train_metrics_aggr_fn([leader.metrics[p] for p in members], key)
        models = [part.model for part in counted if part.model is not None]
        mean = _arrays.average(models, [part.examples for part in counted])
        reply = next(reply for reply in replies if reply.has_content())
        examples = MetricRecord({key: sum(part.examples for part in counted)})
        reply.content = RecordDict({inner.arrayrecord_key: mean, "metrics": examples})
        own, inner.train_metrics_aggr_fn = inner.train_metrics_aggr_fn, lambda *_: metrics
        try:
            arrays, found = inner.aggregate_train(server_round, [reply])
        finally:
            inner.train_metrics_aggr_fn = own
        if arrays is not None:
            kept = set.intersection(*(set(part.round.kept) for part in counted))
            partition = leader.roster.partition
            _arrays.put_back(arrays, self._arrays, [partition.indices(a) for a in sorted(kept)])
        return arrays, found

    def _report(
        self, server_round: int, leader: ShardLeader, part: _Part, *, is_last: bool
    ) -> None:
        current = part.round
        refused = leader.by_node(current.refused)
        if is_last:
            refused |= leader.by_node(leader.refused) | self._outside
        report = RoundReport(
            server_round=server_round,
            members=tuple(leader.node(place) for place in current.members),
            refused=dict(sorted(refused.items())),
            kept=dict(sorted(current.kept.items())),
            attempts=current.attempts,
            bytes=current.num_bytes,
            digest=leader.roster.digest.hex(),
            cluster=part.cluster,
            lost=leader.by_node(current.lost),
            peak=None if current.round is None else current.round.peak,
            named=tuple(self.names.of(leader.node(place)) for place in current.members),
            skipped=self._skipped,
            staleness=leader.staleness(current.members),
        )
        self.refused |= report.refused
        for node, why in report.refused.items():
            who = self.names.of(node)
            log.warning("round %d: node %s does not count: %s", server_round, who, why)
        for node, why in report.lost.items():
            who = self.names.of(node)
            log.warning("round %d: aggregator %s does not count: %s", server_round, who, why)
        for shard, why in report.kept.items():
            log.warning("round %d: shard %d keeps its values: %s", server_round, shard, why)
        if self._on_round is not None:
            self._on_round(report)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the wrapped strategy, to nodes that train."""
        if self._members is not None:
            grid = ShardGrid(grid, self._members, self._patience, joins=False)
        return self._inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The wrapped strategy's aggregate; nodes with other metrics than most do not count."""
        counted = without_odd_metrics(server_round, replies)
        return self._inner.aggregate_evaluate(server_round, counted)

    def summary(self) -> None:
        """Log the settings, and those of the wrapped strategy."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        log.info("averages in shards: %s", shown)
        self._inner.summary()

    @property
    def min_members(self) -> int:
        """The least number of clients to average."""
        return int(self._settings["min_members"])

    @property
    def has_own_masks(self) -> bool:
        """Whether each client keeps values of its own, relative to its shift."""
        return bool(self._settings["masks"] == "own" and self._settings["one_in"] > 1)

    @property
    def _examples_name(self) -> str:
        return self._inner.weighted_by_key


@dataclass(slots=True, eq=False)
class _Part:
    """The average of one cluster, or of all members without one."""

    cluster: int | None
    round: ShardRound
    model: ArrayRecord | None = None
    examples: int = 0
