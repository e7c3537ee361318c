"""A federation whose clients take their messages one by one, as SuperNodes do.

A message waits while its client trains. A client that needs no training answers at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from flwr.app import Message

from modelkin.federation.buffer import staleness_weight
from modelkin.integrations.flower import RoundReport, ShardMod
from tests.sdk.integrations.flower.delayed_federation import DelayedGrid
from tests.sdk.integrations.flower.shards.sharded_federation import (
    Train,
    app,
    examples,
    flat,
    model,
    step_of,
    update,
    vector,
)

__all__ = ["SLOW", "QueuedGrid", "expected"]

SLOW = 5
"""The client that trains for longer than a round."""


class QueuedGrid(DelayedGrid):
    """Five clients that average in shards; the fifth takes its time, and holds no shard.

    Args:
        patch: of the test, which then sleeps without waiting.
        seconds: that the fifth client trains; the others train for one.
        settings: of ``ShardMod``.
        nodes: all clients.
        train: makes what a client sends of its model with the update, which it is without.
        grid: of the grid, such as ``joins``.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        settings: dict[str, Any],
        *,
        seconds: float = 10.0,
        nodes: Iterable[int] = range(1, 6),
        train: Train | None = None,
        **grid: Any,
    ) -> None:
        self.trained: Counter[int] = Counter()
        self.answers: list[tuple[Message, Message]] = []
        self._update = train
        self._free: dict[int, float] = {}
        mods = {node: ShardMod(may_aggregate=node != SLOW, **settings) for node in nodes}
        apps = {node: app([mod], self._train) for node, mod in mods.items()}
        super().__init__(patch, apps, {SLOW: seconds}, **grid)

    def _train(self, node: int, server_round: int, new: dict[str, Any]) -> dict[str, Any]:
        self.trained[node] += 1
        return new if self._update is None else self._update(node, server_round, new)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = list[str]()
        for message in messages:
            node = message.metadata.dst_node_id
            before = self.trained[node]
            reply = self._answered(message)
            self.answers.append((message, reply))
            took = self._seconds.get(node, 1.0) if self.trained[node] > before else 0.0
            assert took is not None
            self._free[node] = max(self.now, self._free.get(node, 0.0)) + took
            self._due[message.metadata.message_id] = (self._free[node], reply)
            ids.append(message.metadata.message_id)
        return ids

    def told(self, node: int, step: str) -> list[Message]:
        """A client's answers to the messages of a step."""
        return [
            reply
            for message, reply in self.answers
            if message.metadata.dst_node_id == node and step_of(message) == step
        ]


def expected(reports: Sequence[RoundReport]) -> npt.NDArray[np.float64]:
    """The model after these rounds, in float64: a mean by examples of updates, less if late."""
    found = vector(model()).astype(np.float64)
    for report in reports:
        total = sum(map(examples, report.members))
        for node in report.members:
            late = report.staleness.get(node, 0)
            step = flat(update(node, report.server_round - late))
            found += step * (staleness_weight(late) * examples(node) / total)
    return found
