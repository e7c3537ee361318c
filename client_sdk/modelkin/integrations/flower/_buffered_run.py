"""``BufferedRun``: what a run without rounds has sent to its nodes, and what came of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.federation.buffer import Arrays
from modelkin.integrations.federation.buffered_models import BufferedModels, Group, Lent
from modelkin.integrations.federation.cluster_history import RoundClusters
from modelkin.integrations.federation.shards.messages import read
from modelkin.integrations.federation.shards.rounds import check_examples
from modelkin.integrations.federation.support_clusters import SupportClusters
from modelkin.integrations.flower import _arrays
from modelkin.integrations.flower._grids import failure, take_records
from modelkin.integrations.flower._metrics import odd_metrics

__all__ = ["BufferedRun", "BufferedStep"]

log = logging.getLogger("modelkin.integrations")


@dataclass(frozen=True, slots=True, eq=False)
class BufferedStep:
    """A step of the model of all clients, or of one cluster.

    Attributes:
        number: of the step, from 1 on, over all clusters.
        cluster: its number; None for all clients, or for those of no cluster.
        arrays: the new model.
        staleness: the steps that the model of each client had taken since it was sent, by node.
        left_out: why other answers did not count since the step before, by node.
        seconds: since the run began.
        named: the names of the clients of the step, or else their node ids.
    """

    number: int
    cluster: int | None
    arrays: ArrayRecord
    staleness: Mapping[int, int]
    left_out: Mapping[int, str]
    seconds: float
    named: tuple[str, ...]


class BufferedRun:
    """A run, from its first message on.

    Args:
        grid: of the ServerApp.
        first: the first weights.
        config: sent with each model.
        settings: the size, the largest staleness and the rate of :class:`BufferedModels`.
        supports: reads the answers, and clusters clients if it keeps their first supports.
        weighted_by: the metric that is a client's weight.
        patience: seconds without a sign of a client, after which it is forgotten.
        equal: whether all clients weigh the same, whatever that metric is.
    """

    def __init__(
        self,
        grid: Grid,
        first: ArrayRecord,
        config: ConfigRecord,
        settings: Mapping[str, Any],
        supports: SupportClusters[ArrayRecord],
        weighted_by: str,
        patience: float,
        *,
        equal: bool,
    ) -> None:
        _arrays.check_arrays(first)
        self._grid, self._config, self._supports = grid, config, supports
        self._weighted_by, self._patience, self._equal = weighted_by, patience, equal
        model = {name: array.numpy() for name, array in first.items()}
        group_of = supports.cluster_of if supports.keeps_first else None
        self.models = BufferedModels(model, group_of=group_of, **settings)
        self._records = {0: first}
        """The models that may be sent, by their numbers."""
        self._sent: dict[str, int] = {}
        """The nodes that train, by the ids of their messages."""
        self._late = set[int]()
        """The nodes that train another model than the first weights."""
        self._seen: dict[int, float] = {}
        """When each node was last sent a model, or was idle and connected."""
        self._metrics: dict[int, RecordDict] = {}
        self._begin = self._moved = time.monotonic()
        self.steps = 0
        self.clusters: RoundClusters | None = None
        supports.begin(first, _arrays.num_values(first), grid.get_node_ids())

    @property
    def seconds(self) -> float:
        """The time since the run began."""
        return time.monotonic() - self._begin

    @property
    def arrays(self) -> ArrayRecord:
        """The model; the mean of all groups' models by their clients, where there are several."""
        members, models = self.models.members, self.models.models
        if not models:
            return self._records[0]
        records = [_record(models[group]) for group in members]
        return _arrays.average(records, [len(nodes) for nodes in members.values()])

    @property
    def cluster_arrays(self) -> dict[int, ArrayRecord]:
        """The model of each cluster."""
        models = self.models.models.items()
        return {group: _record(model) for group, model in models if group is not None}

    def push(self, present: Collection[int]) -> None:
        """Send each idle node that is connected the model that it should train."""
        for node in sorted(present):
            lent = self.models.offer(node)
            if lent is None:
                continue
            ids = [*self._grid.push_messages([self._message(node, lent)])]
            if not ids or not ids[0]:
                log.warning("node %s: its message could not be sent", self._name(node))
                continue
            if lent.version == 0:
                self._supports.first.lend(node)
                self._late.discard(node)
            else:
                self._late.add(node)
            self.models.lend(node, lent)
            self._sent[ids[0]], self._seen[node] = node, time.monotonic()
        if present and self.models.is_idle and time.monotonic() - self._moved > self._patience:
            log.warning("no answer counted for %g s: all clients are asked again", self._patience)
            self.models.ask_again()
            self._moved = time.monotonic()

    def _message(self, node: int, lent: Lent) -> Message:
        if lent.version not in self._records:
            self._records[lent.version] = _record(lent.model)
        config = ConfigRecord({**self._config, "server-round": lent.version})
        content = RecordDict({"arrays": self._records[lent.version], "config": config})
        return Message(content, dst_node_id=node, message_type=MessageType.TRAIN)

    def take_answers(self, present: Collection[int]) -> None:
        """Take the answers that are there, in the order of their nodes."""
        if not self._sent:
            return
        answers = dict[int, Message]()
        for reply in self._grid.pull_messages(list(self._sent)):
            node = self._sent.pop(reply.metadata.reply_to_message_id, None)
            if node is not None:
                answers[node] = reply
        replies = [answers[node] for node in sorted(answers)]
        self._supports.present = frozenset(present)
        messages, unread = self._supports.read(take_records(replies))
        if self._supports.keeps_first and replies:
            known = self._supports.first.messages  # a support of other weights makes nobody known
            messages = {n: m for n, m in messages.items() if n not in self._late or n in known}
            found, _ = self._supports.update(self.steps, messages, unread, self.clusters)
            self.clusters = None if found is None else replace(found, replied=tuple(answers))
        for node in sorted(answers):
            self._seen[node] = self._moved = time.monotonic()
            try:
                trained, examples, metrics = self._read(answers[node])
            except InvalidInput as error:
                self.models.refuse(node, str(error))
            else:
                self._metrics[node] = metrics
                self.models.take(node, trained, examples)
            if node in self.models.left_out:
                why = self.models.left_out[node]
                log.warning("the answer of node %s does not count: %s", self._name(node), why)

    def _read(self, reply: Message) -> tuple[Arrays, int, RecordDict]:
        why = failure(reply)
        if why:
            raise InvalidInput(why)
        _, record = _arrays.only(reply.content.array_records)
        if len(reply.content.metric_records) != 1:
            raise InvalidParameter("its reply must have one record of metrics", field="metrics")
        (metrics,) = reply.content.metric_records.values()
        if self._equal:
            metrics[self._weighted_by] = 1  # in means of metrics as well
        examples = check_examples(metrics.get(self._weighted_by))
        trained = read("its arrays", lambda: {n: _arrays.values_of(a) for n, a in record.items()})
        return trained, examples, RecordDict({"metrics": metrics})

    def forget(self, present: Collection[int]) -> None:
        """Forget nodes that have not answered, or were not connected, for too long."""
        now, training = time.monotonic(), set(self._sent.values())
        for node in [*self._seen]:
            if node in present and node not in training:
                self._seen[node] = now
            elif now - self._seen[node] > self._patience:
                lost = "did not answer" if node in training else "was not connected"
                why = f"it {lost} for {self._patience:g} s: it is new if it comes back"
                log.warning("node %s is forgotten: %s", self._name(node), why)
                self.models.forget(node, why)
                self._supports.first.forget(node)
                self._sent = {i: other for i, other in self._sent.items() if other != node}
                del self._seen[node]

    def step(self, group: Group) -> tuple[BufferedStep, MetricRecord | None]:
        """Let the model of a group take a step; return it, and the metrics of its clients."""
        version, counted = self.models.step(group)
        self.steps, self._moved = self.steps + 1, time.monotonic()
        arrays = _record(self.models.models[group])
        self._records = {0: self._records[0], version: arrays}
        staleness = {int(each.client): each.staleness for each in counted}
        done = BufferedStep(
            number=self.steps,
            cluster=group,
            arrays=arrays,
            staleness=staleness,
            left_out=dict(sorted(self.models.left_out.items())),
            seconds=self.seconds,
            named=tuple(self._name(node) for node in staleness),
        )
        self.models.left_out.clear()
        return done, self._averaged({node: self._metrics[node] for node in staleness})

    def log_end(self) -> None:
        """Log how the run ended."""
        log.info(
            "%d steps in %.0f s; %d clients still train, and are not waited for",
            self.steps,
            self.seconds,
            len(self._sent),
        )

    def _averaged(self, contents: dict[int, RecordDict]) -> MetricRecord | None:
        """The mean of the clients' metrics, without those of another form than most."""
        for node, why in odd_metrics(contents).items():
            log.warning("the metrics of node %s do not count: %s", self._name(node), why)
            del contents[node]
        own = FedAvg(weighted_by_key=self._weighted_by)
        return own.train_metrics_aggr_fn(list(contents.values()), self._weighted_by)

    def _name(self, node: int) -> str:
        return self._supports.names.of(node)


def _record(model: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(values) for name, values in model.items()})
