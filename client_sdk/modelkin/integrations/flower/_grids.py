"""Grids: questions to nodes beside the training, and the bytes of all messages of a run."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.serverapp import Grid

from modelkin.integrations.federation.data_clusters import ASK

__all__ = [
    "FAILED",
    "RECORD",
    "SILENT",
    "Costs",
    "MeteredGrid",
    "RoundCosts",
    "exchange",
    "failure",
    "is_ask",
    "take_records",
]

log = logging.getLogger("modelkin.integrations")

RECORD: Final = "modelkin"
"""The name of modelkin's record in messages of both directions and in a client's state."""

SILENT: Final = "it did not answer in time"
"""The reason of a node of which nothing came."""

FAILED: Final = "its app failed"
"""The beginning of the reason of a node whose app raised an error."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
"""A code that colours what a terminal shows, of which tracebacks of engines are full."""

_MAX_REASON: Final = 500
"""The most characters of the reason why an app failed."""


def is_ask(message: Message) -> bool:
    """Whether a message asks for a subspace, and for no training."""
    record = message.content.config_records.get(RECORD)
    return record is not None and record.get("step") == ASK


def exchange(
    grid: Grid, messages: Sequence[Message], timeout: float
) -> dict[int, RecordDict | str]:
    """Send a message to each node; return each node's content, or the reason why it is missing."""
    found: dict[int, RecordDict | str] = dict.fromkeys(
        (message.metadata.dst_node_id for message in messages), SILENT
    )
    for reply in grid.send_and_receive(messages, timeout=timeout):
        node = reply.metadata.src_node_id
        if node in found:
            found[node] = failure(reply) or reply.content
    return found


def failure(reply: Message) -> str:
    """The reason why a reply has no content, or an empty text."""
    if reply.has_content():
        return ""
    if not reply.has_error():
        return "an empty answer"
    reason = reply.error.reason or "no reason"
    log.debug("the app of node %d failed: %s", reply.metadata.src_node_id, reason)
    return f"{FAILED}: {_cause(reason)}"


def take_records(replies: Iterable[Message], name: str = RECORD) -> dict[int, ConfigRecord | None]:
    """Take a record of modelkin out of each reply with a content; None where it is missing."""
    found: dict[int, ConfigRecord | None] = {}
    for reply in replies:
        if reply.has_content():  # the wrapped strategy reports failures
            record: Any = reply.content.pop(name, None)
            node = reply.metadata.src_node_id
            found[node] = record if isinstance(record, ConfigRecord) else None
    return found


def _cause(reason: str) -> str:
    """The last line of a reason: engines send whole tracebacks, which end with the cause."""
    plain = _COLOUR.sub("", reason)
    lines = [" ".join(each.split()) for each in plain.splitlines()]
    text = ([each for each in lines if each.strip("'\">")] or ["no reason"])[-1]
    text = "".join(c if c.isprintable() else " " for c in text).removesuffix("'>")
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]} ..."


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """The bytes of all messages between the server and its nodes in one round.

    Attributes:
        down: the bytes to each node, by node.
        up: the bytes from each node, by node.
    """

    down: dict[int, int] = field(default_factory=dict)
    up: dict[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The bytes to and from all nodes."""
        return sum(self.down.values()) + sum(self.up.values())


class Costs:
    """The bytes of a run's messages, by round."""

    def __init__(self) -> None:
        self.rounds: dict[int, RoundCosts] = {}
        self._current = RoundCosts()

    def begin(self, server_round: int) -> None:
        """Begin to count for a round."""
        self._current = self.rounds.setdefault(server_round, RoundCosts())

    def count_outgoing(self, message: Message) -> None:
        """Count a message to a node."""
        node, down = message.metadata.dst_node_id, self._current.down
        down[node] = down.get(node, 0) + _size(message)

    def count_incoming(self, message: Message) -> None:
        """Count a message from a node."""
        node, up = message.metadata.src_node_id, self._current.up
        up[node] = up.get(node, 0) + _size(message)


def _size(message: Message) -> int:
    return int(message_to_proto(message).ByteSize())


class MeteredGrid(Grid):
    """A Grid that counts the bytes of messages.

    Args:
        grid: the run's grid.
        costs: the costs to add to.
    """

    def __init__(self, grid: Grid, costs: Costs) -> None:
        self._grid, self._costs = grid, costs

    def set_run(self, run: Any) -> None:
        """Call the wrapped grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run of the wrapped grid."""
        return self._grid.run

    def get_node_ids(self) -> Iterable[int]:
        """Call the wrapped grid."""
        return self._grid.get_node_ids()

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Call the wrapped grid."""
        return self._grid.create_message(*args, **kwargs)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Call the wrapped grid, and count."""
        sent = list(messages)
        ids = self._grid.push_messages(sent)
        self._note(sent)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Call the wrapped grid, and count."""
        return self._count_incoming(self._grid.pull_messages(message_ids))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Call the wrapped grid, and count."""
        sent = list(messages)
        answers = self._grid.send_and_receive(sent, timeout=timeout)
        self._note(sent)
        return self._count_incoming(answers)

    def _note(self, sent: Iterable[Message]) -> None:
        """Count messages once they are sent: only then they have the ids that they travel with."""
        for message in sent:
            self._costs.count_outgoing(message)

    def _count_incoming(self, messages: Iterable[Message]) -> list[Message]:
        found = list(messages)
        for message in found:
            self._costs.count_incoming(message)
        return found
