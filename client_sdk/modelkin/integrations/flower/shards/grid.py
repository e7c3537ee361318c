"""``ShardGrid``: the Grid of a strategy that averages in shards."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.integrations.federation.shards.members import ShardMembers
from modelkin.integrations.federation.shards.messages import (
    ShardMessage,
    opened,
    party_of,
    read,
)
from modelkin.integrations.flower._grids import FAILED, SILENT, exchange
from modelkin.integrations.flower.shards.records import message_of, record_of

__all__ = ["ShardGrid", "message_or_reason"]

log = logging.getLogger("modelkin.integrations")

_POLL_SECONDS: Final = 1.0

_IS_FIRST: Final = "is ShardMod the first mod of its app, but for DataMod and SupportMod?"
_NO_MOD: Final = f"it did not answer as ShardMod does; {_IS_FIRST}"


class ShardGrid(Grid):
    """A Grid that lets nodes join before it names them, and that hides nodes that never train.

    Args:
        grid: the run's grid.
        members: the parties that nodes join, by their keys.
        timeout: seconds to wait for nodes, and for their answers.
        joins: whether new nodes are asked to join.
    """

    def __init__(
        self, grid: Grid, members: ShardMembers, timeout: float, *, joins: bool = True
    ) -> None:
        self._grid, self._members, self._timeout = grid, members, timeout
        self._joins = joins
        self.outside: dict[int, str] = {}
        """The reasons why nodes have not joined in this round."""

    def wait_for(self, nodes: int) -> None:
        """Wait until so many nodes are connected.

        Raises:
            InvalidParameter: too few nodes are connected within the timeout.
        """
        end = time.monotonic() + self._timeout
        while len(present := list(self._grid.get_node_ids())) < nodes:
            if time.monotonic() + _POLL_SECONDS > end:
                raise InvalidParameter(
                    f"aggregators={nodes} needs as many nodes; {len(present)} are connected after "
                    f"{self._timeout:g} s",
                    field="aggregators",
                )
            time.sleep(_POLL_SECONDS)

    def present(self) -> list[int]:
        """All connected nodes."""
        return list(self._grid.get_node_ids())

    def get_node_ids(self) -> Iterable[int]:
        """Let connected nodes join, and return them without the neutral ones."""
        nodes = self.present()
        asked = [n for n in nodes if not self._members.has(n) and n not in self.outside]
        if asked and self._joins:
            record = record_of(ShardMessage({"step": "join"}))
            for node, answer in self.exchange(dict.fromkeys(asked, record)).items():
                self._join(node, answer)
        return [node for node in nodes if not self._members.is_neutral(node)]

    def _join(self, node: int, answer: RecordDict | str) -> None:
        try:
            values = opened(message_or_reason(answer)).values
            self._members.join(node, *read("its join", lambda: party_of(str(node), values)))
        except InvalidInput as error:
            self.outside[node] = str(error)
            log.warning("node %d does not average in shards: %s", node, error)

    def none_joined(self) -> InvalidParameter:
        """The error of a round that no node has joined: a reason, and what helps against it."""
        told = {node: why for node, why in self.outside.items() if why != SILENT}
        node, why = next(iter((told or self.outside).items()))
        if why == SILENT:
            why += f" (patience is {self._timeout:g} s); a node that is only slow needs more"
        elif why.startswith(FAILED):
            why += f"; {_IS_FIRST}"
        return InvalidParameter(f"no node averages in shards; node {node}: {why}", field="grid")

    def exchange(self, contents: Mapping[int, RecordDict]) -> dict[int, RecordDict | str]:
        """Send each node a training message; return its content, or the reason for none."""
        messages = [
            Message(content, dst_node_id=node, message_type=MessageType.TRAIN)
            for node, content in contents.items()
        ]
        return exchange(self._grid, messages, self._timeout)

    def set_run(self, run: Any) -> None:
        """Call the wrapped grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run of the wrapped grid."""
        return self._grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Call the wrapped grid."""
        return self._grid.create_message(*args, **kwargs)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Call the wrapped grid."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Call the wrapped grid."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Call the wrapped grid."""
        return self._grid.send_and_receive(messages, timeout=timeout)


def message_or_reason(answer: RecordDict | str) -> ShardMessage | str:
    """A node's message, or the reason why there is none."""
    if isinstance(answer, str):
        return answer
    message = message_of(answer)
    return _NO_MOD if message is None else message
