"""Rounds of shards that are closed by time: who is late is no member, and the others are exact."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import Message

from modelkin.integrations.flower import RoundReport, ShardMod
from tests.sdk.integrations.flower.delayed_federation import DelayedGrid
from tests.sdk.integrations.flower.sharded_federation import (
    app,
    averaging,
    exact,
    model,
    sharded,
    vector,
)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize("conceal", [False, True])
def test_a_round_is_closed_by_time(monkeypatch: pytest.MonkeyPatch, conceal: bool) -> None:
    """After the timeout a round goes on without the slow client, at the first attempt."""
    apps = {node: app([ShardMod(conceal=conceal)]) for node in range(1, 6)}
    grid = DelayedGrid(monkeypatch, apps, {5: 10.0})
    reports = list[RoundReport]()
    strategy = sharded(reports, averaging(), conceal=conceal, patience=30.0)
    result = strategy.start(grid=grid, initial_arrays=model(), num_rounds=2, timeout=3.0)
    assert [(1, 2, 3, 4)] * 2 == [report.members for report in reports]
    assert [{5: "it did not answer in time"}] * 2 == [report.refused for report in reports]
    assert [1, 1] == [report.attempts for report in reports]
    assert not any(report.kept for report in reports)
    assert np.abs(vector(result.arrays) - exact((1, 2, 3, 4), rounds=2)).max() < 1e-6


class LateGrid(DelayedGrid):
    """Gives the fifth client's training of a round as its answer in the next round."""

    late: Message | None = None

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = list(messages)
        answers = list(super().send_and_receive(sent, timeout=timeout))
        if not any("config" in message.content for message in sent):
            return answers
        before, self.late = self.late, None
        for each in [each for each in answers if each.metadata.src_node_id == 5]:
            answers.remove(each)
            self.late = each
        return [*answers, *([] if before is None else [before])]


def test_cells_of_an_earlier_round_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain answer that comes a round late is refused there, and moves nothing."""
    apps = {node: app([ShardMod(conceal=False)]) for node in range(1, 6)}
    reports = list[RoundReport]()
    strategy = sharded(reports, averaging(), conceal=False, patience=30.0)
    grid = LateGrid(monkeypatch, apps)
    result = strategy.start(grid=grid, initial_arrays=model(), num_rounds=2)
    assert [(1, 2, 3, 4)] * 2 == [report.members for report in reports]
    assert "of another shard, member, round or attempt" in reports[1].refused[5]
    assert np.abs(vector(result.arrays) - exact((1, 2, 3, 4), rounds=2)).max() < 1e-6
