"""``ShardLeader``: one round of shards over a Grid, from the training replies to the average."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flwr.app import ConfigRecord, Message, RecordDict

from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.federation.shards.roster import Roster
from modelkin.integrations.federation.shards.leader import RoundLeader
from modelkin.integrations.federation.shards.members import ShardMembers
from modelkin.integrations.federation.shards.messages import ShardMessage
from modelkin.integrations.federation.shards.rounds import Trained
from modelkin.integrations.flower._grids import SILENT, failure
from modelkin.integrations.flower._metrics import odd_metrics
from modelkin.integrations.flower.shards.grid import ShardGrid, message_or_reason
from modelkin.integrations.flower.shards.records import CELLS, RECORD, record_of

__all__ = ["ShardLeader"]


class ShardLeader(RoundLeader):
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
        super().__init__(members, roster, number, self._carry, grid.present)
        self._grid, self._weighted_by = grid, weighted_by
        self.metrics: dict[int, RecordDict] = {}

    def _carry(self, messages: Mapping[int, ShardMessage]) -> dict[int, ShardMessage | str]:
        contents = {node: record_of(message) for node, message in messages.items()}
        answers = self._grid.exchange(contents)
        return {node: message_or_reason(answer) for node, answer in answers.items()}

    def training(self, node: int) -> ConfigRecord:
        """The record of a training message."""
        return ConfigRecord(self.asked(node, {"step": "train", "weighted-by": self._weighted_by}))

    def take(self, asked: Iterable[int], replies: Iterable[Message]) -> None:
        """Take the training replies, and refuse replies that cannot count.

        Args:
            asked: the nodes that were to train.
            replies: answers to the training messages, errors among them.
        """
        answers: dict[int, RecordDict | str] = dict.fromkeys(asked, SILENT)
        for reply in replies:
            node = reply.metadata.src_node_id
            if node in answers:
                answers[node] = failure(reply) or reply.content
        for node, answer in answers.items():
            place = self.place(node)
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
        message = self.open(node, message_or_reason(answer))
        assert isinstance(answer, RecordDict)
        if set(answer.array_records) - {CELLS}:
            raise InvalidParameter("it sent its arrays in the clear", field="arrays")
        if len(answer.metric_records) != 1:
            raise InvalidParameter("its reply must have one record of metrics", field="metrics")
        (metrics,) = answer.metric_records.values()
        return self.read_training(message, metrics.get(self._weighted_by))

    def _refuse_odd_metrics(self) -> None:
        """Refuse members whose metrics are unlike those of most, and cannot be averaged."""
        for place, why in odd_metrics(self.metrics).items():
            self.refused[place] = why
            del self.trained[place], self.metrics[place]
