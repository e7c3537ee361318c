"""A federation of Flower in one process whose clients take their time, by a clock of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from flwr.app import Message
from flwr.clientapp import ClientApp

from tests.sdk.integrations.flower.federation import LocalGrid


class DelayedGrid(LocalGrid):
    """Answers messages when their time has come; ``time`` tells and moves its clock.

    Args:
        patch: of the test, which then sleeps without waiting.
        apps: by node id.
        seconds: that each client takes; 1 where nothing is said, and None for never.
        joins: when a client is connected first, where that is later than 0.
        leaves: when a client is connected no more.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        apps: dict[int, ClientApp],
        seconds: Mapping[int, float | None] | None = None,
        *,
        joins: Mapping[int, float] | None = None,
        leaves: Mapping[int, float] | None = None,
    ) -> None:
        super().__init__(apps)
        self.now, self._seconds = 0.0, seconds or {}
        self._joins, self._leaves = joins or {}, leaves or {}
        self._due: dict[str, tuple[float, Message]] = {}
        patch.setattr(time, "monotonic", lambda: self.now)
        patch.setattr(time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def get_node_ids(self) -> Iterable[int]:
        return [
            node
            for node in super().get_node_ids()
            if self._joins.get(node, 0) <= self.now < self._leaves.get(node, float("inf"))
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = list[str]()
        for message in messages:
            reply = self._answered(message)
            node, number = message.metadata.dst_node_id, message.metadata.message_id
            seconds = self._seconds.get(node, 1.0)
            if seconds is not None and self.now + seconds < self._leaves.get(node, float("inf")):
                self._due[number] = (self.now + seconds, reply)
            ids.append(number)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        asked = set(message_ids)
        ready = [i for i, (due, _) in self._due.items() if i in asked and due <= self.now]
        return [self._due.pop(i)[1] for i in reversed(ready)]  # in no order of the nodes

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """As Flower's: all answers, or those that come within the timeout."""
        ids, found = [*self.push_messages(messages)], list[Message]()
        end = self.now + (float("inf") if timeout is None else timeout)
        while ids and self.now < end:
            pulled = list(self.pull_messages(ids))
            found += pulled
            ids = [i for i in ids if i not in {m.metadata.reply_to_message_id for m in pulled}]
            if ids:
                self._sleep(0.5)
        return found

    def sent_to(self, node: int) -> list[dict[str, Any]]:
        """The records of each message to a node."""
        return [dict(m.content) for m in self.sent if m.metadata.dst_node_id == node]
