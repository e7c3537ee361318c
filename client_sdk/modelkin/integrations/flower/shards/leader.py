"""``ShardLeader``: one round of shards over a Grid, from the training replies to the average."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict

from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.shards.roster import Roster
from modelkin.integrations.federation.shards.members import Receipt, ShardMembers
from modelkin.integrations.federation.shards.rounds import (
    Answer,
    Ask,
    ReleaseAsk,
    SendAsk,
    ShardRound,
    Trained,
    check_examples,
)
from modelkin.integrations.flower._metrics import odd_metrics
from modelkin.integrations.flower.shards.grid import ShardGrid, record_of
from modelkin.integrations.flower.shards.records import (
    CELLS,
    RECORD,
    combine_record,
    piece_values,
    read,
    receipt_values,
    results_of,
    round_values,
    sent_cells,
    tag_values,
    tags_of,
)

__all__ = ["ShardLeader"]


class ShardLeader:
    """The server's part in one round.

    Args:
        members: the parties of all rounds, with their keys.
        grid: the round's grid.
        roster: the round's roster.
        number: the round's number.
        weighted_by: the name of the examples among a client's metrics.
    """

    def __init__(
        self, members: ShardMembers, grid: ShardGrid, roster: Roster, number: int, weighted_by: str
    ) -> None:
        self._members, self._grid = members, grid
        self.roster, self.number = roster, number
        self._nodes = members.nodes
        self._weighted_by = weighted_by
        self._roster_text = json.dumps(roster.to_json(), separators=(",", ":"))
        self._receipts: dict[int, list[Receipt]] = {}
        self.trained: dict[int, Trained] = {}
        self.metrics: dict[int, RecordDict] = {}
        self.refused: dict[int, str] = {}

    def node(self, place: int) -> int:
        """The node at a place of the roster."""
        return self._nodes[place]

    def by_node(self, reasons: Mapping[int, str]) -> dict[int, str]:
        """Map reasons by place to reasons by node."""
        return {self._nodes[place]: why for place, why in sorted(reasons.items())}

    def training(self, node: int) -> ConfigRecord:
        """The record of a training message."""
        return self._record(node, {"step": "train", "weighted-by": self._weighted_by})

    def _record(self, node: int, values: dict[str, Any]) -> ConfigRecord:
        self._receipts[node] = self._members.receipts(node)
        common = {
            "roster": self._roster_text,
            "number": self.number,
            **receipt_values(self._receipts[node]),
        }
        return ConfigRecord({**common, **values})

    def take(self, asked: Iterable[int], replies: Iterable[Message]) -> None:
        """Take the training replies, and refuse replies that cannot count.

        Args:
            asked: the nodes that were to train.
            replies: answers to the training messages, errors among them.
        """
        answers: dict[int, RecordDict | str] = dict.fromkeys(asked, "it did not answer in time")
        for reply in replies:
            node = reply.metadata.src_node_id
            if node in answers:
                failed = "" if reply.has_content() else f"its app failed: {reply.error.reason}"
                answers[node] = failed or reply.content
        for node, answer in answers.items():
            place = self._nodes.index(node)
            try:
                self.trained[place] = self._read_training(node, answer)
            except InvalidInput as error:
                self.refused[place] = str(error)
                continue
            assert isinstance(answer, RecordDict)
            self.metrics[place] = RecordDict(
                {name: each for name, each in answer.items() if name not in {RECORD, CELLS}}
            )
        self._refuse_odd_metrics()

    def _read_training(self, node: int, answer: RecordDict | str) -> Trained:
        self._note(node, answer)
        record = record_of(answer)
        assert isinstance(answer, RecordDict)
        if set(answer.array_records) - {CELLS}:
            raise InvalidParameter("it sent its arrays in the clear", field="arrays")
        if len(answer.metric_records) != 1:
            raise InvalidParameter("its reply must have one record of metrics", field="metrics")
        (metrics,) = answer.metric_records.values()
        examples = check_examples(metrics.get(self._weighted_by))
        if not self.roster.plan.conceal:
            tags = read("its tags", lambda: tags_of(record))
            return Trained(examples, cells=read("its cells", lambda: sent_cells(answer)), tags=tags)
        peak = record.get("peak")
        if not isinstance(peak, float):
            raise InvalidParameter("it did not send its largest value", field="peak")
        least_power(peak)
        return Trained(examples, peak)

    def _note(self, node: int, answer: RecordDict | str) -> None:
        """Note whether an answer shows that its node has the receipts, or has lost its key."""
        if isinstance(answer, str):
            return
        record = answer.config_records.get(RECORD, ConfigRecord())
        if record.get("rejoin"):
            self._members.forget(node)
        elif "refused" not in record:
            self._members.forget_receipts(node, self._receipts.get(node, []))

    def _refuse_odd_metrics(self) -> None:
        """Refuse members whose metrics are unlike those of most, and cannot be averaged."""
        for place, why in odd_metrics(self.metrics).items():
            self.refused[place] = why
            del self.trained[place], self.metrics[place]

    def lead(self, current: ShardRound) -> None:
        """Lead a round to its end."""
        steps = current.steps()
        try:
            asks = next(steps)
            while True:
                asks = steps.send(self._answers(asks))
        except StopIteration:
            self._members.end(current)

    def _answers(self, asks: Sequence[Ask]) -> dict[int, Answer]:
        present = set(self._grid.present())
        found: dict[int, Answer] = {}
        contents: dict[int, RecordDict] = {}
        for ask in asks:
            node = self.node(ask.place)
            if node in present:
                contents[node] = self._content(node, ask)
            else:
                found[ask.place] = "it is not connected"
        answers = self._grid.exchange(contents)
        for ask in asks:
            answer = answers.get(self.node(ask.place))
            if answer is not None:
                found[ask.place] = self._read(ask, answer)
        return found

    def _content(self, node: int, ask: Ask) -> RecordDict:
        values = round_values(ask.round)
        if isinstance(ask, SendAsk):
            return RecordDict({RECORD: self._record(node, {"step": "send", **values})})
        if isinstance(ask, ReleaseAsk):
            values |= {"step": "release", **piece_values(ask.pieces)}
            return RecordDict({RECORD: self._record(node, values)})
        values |= {"step": "combine", "release": ask.release, **tag_values(ask.tags)}
        return RecordDict({RECORD: self._record(node, values), CELLS: combine_record(ask.cells)})

    def _read(self, ask: Ask, answer: RecordDict | str) -> Answer:
        self._note(self.node(ask.place), answer)
        try:
            record_of(answer)
            assert isinstance(answer, RecordDict)
            if isinstance(ask, SendAsk):
                return read("its cells", lambda: sent_cells(answer))
            return read("its result", lambda: results_of(answer))
        except InvalidInput as error:
            return str(error)
