"""Rounds of shards that are closed by time: the others are exact, and late updates count later."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from flwr.app import Array, ArrayRecord, Message

from modelkin.errors import InvalidParameter
from modelkin.federation.buffer import staleness_weight
from modelkin.federation.shards.shifts import gamma
from modelkin.integrations.flower import ClusteredStrategy, RoundReport, ShardMod, SupportMod
from tests.sdk.integrations.flower.delayed_federation import DelayedGrid
from tests.sdk.integrations.flower.federation import LocalGrid, mlp
from tests.sdk.integrations.flower.federation import app as app_of_kinds
from tests.sdk.integrations.flower.queued_federation import SLOW, QueuedGrid, expected
from tests.sdk.integrations.flower.shards.sharded_federation import (
    app,
    averaging,
    exact,
    examples,
    flat,
    grid_of,
    model,
    run,
    sharded,
    steady,
    step_of,
    update,
    vector,
)

QUICK = (1, 2, 3, 4)


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


def closed_rounds(
    grid: QueuedGrid, rounds: int, **settings: Any
) -> tuple[list[RoundReport], ArrayRecord]:
    """The reports of rounds that are closed after three seconds, and the model then."""
    reports = list[RoundReport]()
    strategy = sharded(reports, averaging(), **settings)
    result = strategy.start(grid=grid, initial_arrays=model(), num_rounds=rounds, timeout=3.0)
    return reports, result.arrays


@pytest.mark.parametrize("conceal", [False, True])
def test_a_late_client_counts_in_later_rounds(
    monkeypatch: pytest.MonkeyPatch, conceal: bool
) -> None:
    """It trains for ten seconds, counts, and trains again; each average is that of float64."""
    grid = QueuedGrid(monkeypatch, {"conceal": conceal, "max_staleness": 5})
    reports, arrays = closed_rounds(grid, 9, conceal=conceal)
    in_time, late = (*QUICK,), (*QUICK, SLOW)
    counted = [report.members for report in reports]
    assert [in_time, in_time, in_time, late, in_time, in_time, in_time, late, in_time] == counted
    assert [{}, {}, {}, {SLOW: 3}, {}, {}, {}, {SLOW: 3}, {}] == [r.staleness for r in reports]
    assert 3 == grid.trained[SLOW]
    assert not any(report.kept for report in reports)
    assert np.abs(vector(arrays) - expected(reports)).max() < 1e-6


def test_an_update_too_late_is_dropped_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond the bound the client says so, and trains; the others' averages are exact."""
    caplog.set_level(logging.WARNING, "modelkin.integrations")
    grid = QueuedGrid(monkeypatch, {"conceal": False, "max_staleness": 2})
    reports, arrays = closed_rounds(grid, 4, conceal=False)
    assert [QUICK] * 4 == [report.members for report in reports]
    assert np.abs(vector(arrays) - expected(reports)).max() < 1e-6
    named = "the update of round 1 is dropped: it is 3 rounds late, and max_staleness is 2"
    assert 1 == sum(named == record.getMessage() for record in caplog.records)


def test_by_default_no_update_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bound the client trains in each round, and never counts."""
    grid = QueuedGrid(monkeypatch, {"conceal": False})
    reports, _ = closed_rounds(grid, 4, conceal=False)
    assert [QUICK] * 4 == [report.members for report in reports]
    assert 4 == grid.trained[SLOW]


@pytest.mark.parametrize("conceal", [False, True])
def test_no_cell_leaves_before_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, conceal: bool
) -> None:
    """No reply to a training message has cells, and each update's cells leave once."""
    grid = QueuedGrid(monkeypatch, {"conceal": conceal, "max_staleness": 5})
    closed_rounds(grid, 9, conceal=conceal)
    for reply in grid.told(SLOW, "train"):
        assert "modelkin-shard-cells" not in reply.content.array_records
    assert 2 == len(grid.told(SLOW, "send"))


@pytest.mark.parametrize("conceal", [False, True])
def test_an_update_whose_cells_were_asked_for_is_not_offered_again(conceal: bool) -> None:
    """If they do not arrive they may have counted, for all that the client knows: it trains."""
    calls: list[tuple[int, int]] = []

    def train(node: int, server_round: int, new: dict[str, Any]) -> dict[str, Any]:
        calls.append((node, server_round))
        return new

    grid = grid_of(range(1, 6), train, conceal=conceal, max_staleness=5)

    def is_lost(message: Message) -> bool:
        number = message.content.config_records["modelkin-shards"].get("number")
        node = message.metadata.dst_node_id
        return (node, step_of(message), number) == (SLOW, "send", 1)

    grid.lose_answer = is_lost
    reports = list[RoundReport]()
    result = run(grid, sharded(reports, conceal=conceal), 2)
    assert [QUICK, (*QUICK, SLOW)] == [report.members for report in reports]
    assert [{}, {}] == [report.staleness for report in reports]
    assert {SLOW: "it did not answer in time"} == reports[0].refused
    assert [(SLOW, 1), (SLOW, 2)] == [call for call in calls if call[0] == SLOW]
    assert np.abs(vector(result.arrays) - expected(reports)).max() < 1e-6


@pytest.mark.parametrize("conceal", [False, True])
def test_a_late_update_outlasts_a_roster(monkeypatch: pytest.MonkeyPatch, conceal: bool) -> None:
    """A client joins while another one trains: the late update is sealed for the new roster."""
    settings = {"conceal": conceal, "max_staleness": 5}
    grid = QueuedGrid(monkeypatch, settings, nodes=range(1, 7), joins={6: 4.0})
    reports, arrays = closed_rounds(grid, 5, conceal=conceal)
    assert 2 == len({report.digest for report in reports})
    assert [{}, {}, {}, {SLOW: 3}] == [report.staleness for report in reports][:4]
    assert (*QUICK, SLOW, 6) == reports[3].members
    assert np.abs(vector(arrays) - expected(reports)).max() < 1e-6


def learned(reports: list[RoundReport]) -> npt.NDArray[np.float64]:
    """How often each client's update is in the model, in float64: the mean over random masks.

    A shift makes up for a client that is away: the sum of all shifts counts in each round.
    """
    step, nodes = gamma(1.0), range(1, 6)  # one value in two has a variance of one
    found, known, digest = np.zeros(5), np.zeros(5), ""
    for report in reports:
        if report.digest != digest:
            shifts, of_all, digest = np.zeros(5), np.zeros(5), report.digest
        weights = np.array([examples(n) if n in report.members else 0 for n in nodes], float)
        known = np.maximum(known, weights)
        own = [staleness_weight(report.staleness.get(node, 0)) for node in nodes]
        sent = np.where(weights > 0, own - shifts, 0)
        found += of_all + weights / weights.sum() * sent
        shifts = shifts + step * sent
        of_all = of_all + step * weights / known.sum() * sent
    return found


def test_shifts_go_on_beside_a_late_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's examples stay what they are, so that only its first update begins an epoch."""
    plan = {"conceal": False, "one_in": 2, "masks": "own"}
    grid = QueuedGrid(monkeypatch, {"conceal": False, "max_staleness": 5}, train=steady)
    reports, arrays = closed_rounds(grid, 9, **plan)
    assert [{SLOW: 3}, {SLOW: 3}] == [report.staleness for report in reports[3::4]]
    assert {SLOW} == {node for report in reports for node in report.refused}
    assert [1, 1] == [len({each.digest for each in part}) for part in (reports[:4], reports[4:])]
    steps = np.stack([flat(update(node, 1)) for node in range(1, 6)], axis=1)
    found, *_ = np.linalg.lstsq(steps, vector(arrays) - vector(model()).astype(float))
    # Half of the 1,032 values travel, drawn at random: that moves the figures by 0.02 to 0.05.
    assert learned(reports) == pytest.approx(found, abs=0.25)


def test_a_late_update_of_another_layout_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """The model has other arrays of as many values: the client names the update, and trains."""
    grid = grid_of(range(1, 6), max_staleness=5)
    grid.lose_answer = lambda message: (
        (message.metadata.dst_node_id, step_of(message))
        == (
            SLOW,
            "train",
        )
    )
    run(grid, sharded(conceal=False))
    grid.lose_answer = lambda message: False
    reports = list[RoundReport]()
    flat = ArrayRecord({"flat": Array(np.zeros(1033, np.float32))})
    caplog.set_level(logging.WARNING, "modelkin.integrations")
    strategy = sharded(reports, conceal=False)
    result = strategy.start(grid=grid, initial_arrays=flat, num_rounds=1)
    assert [(*QUICK, SLOW)] == [report.members for report in reports]
    assert {} == reports[0].staleness
    assert np.abs(result.arrays["flat"].numpy() - 1).max() < 1e-6
    assert any("of another run or layout" in record.getMessage() for record in caplog.records)


class LosingGrid(LocalGrid):
    """Loses what one client answers to the first training message."""

    lost = False

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        for reply in super().send_and_receive(messages, timeout=timeout):
            trained = "metrics" in reply.content
            if reply.metadata.src_node_id == SLOW and trained and not self.lost:
                self.lost = True
            else:
                yield reply


@pytest.mark.slow
@pytest.mark.parametrize("per_cluster", [True, False])
def test_a_late_client_is_in_its_cluster(per_cluster: bool) -> None:
    """Its support comes with its update; where supports are of each round's model, it has none.

    With a model for each cluster a client is placed in the round of its first support, and
    averaged with its kin from the next round on.
    """
    apps = {node: app_of_kinds(SupportMod(), ShardMod(max_staleness=3)) for node in range(1, 9)}
    reports = list[RoundReport]()
    strategy = ClusteredStrategy(sharded(reports), per_cluster=per_cluster)
    arrays, rounds = ArrayRecord(mlp().state_dict()), 3 if per_cluster else 2
    strategy.start(grid=LosingGrid(apps), initial_arrays=arrays, num_rounds=rounds)
    late = [report for report in reports if report.staleness]
    assert [{SLOW: rounds - 1}] == [report.staleness for report in late]
    assert ((1, 3, SLOW, 7) if per_cluster else tuple(range(1, 9))) == late[0].members
    assert strategy.clusters is not None
    reasons = {SLOW: "its update is of an earlier round, as its support"}
    assert ({} if per_cluster else reasons) == strategy.clusters.left_out


def test_supports_are_kept_only_behind_the_mod() -> None:
    """SupportMod before it has nothing to send with a late update: the first round says so."""
    inner = [ShardMod(max_staleness=3)]
    apps = {node: app_of_kinds(SupportMod(), inner=inner) for node in range(1, 9)}
    reports = list[RoundReport]()
    strategy = ClusteredStrategy(sharded(reports))
    arrays = ArrayRecord(mlp().state_dict())
    strategy.start(grid=LocalGrid(apps), initial_arrays=arrays, num_rounds=1)
    assert 8 == len(reports[0].refused)
    assert all("SupportMod is before ShardMod" in why for why in reports[0].refused.values())


@pytest.mark.parametrize("bound", [-1, 1.5, True, None])
def test_a_bound_is_a_whole_number(bound: Any) -> None:
    """Anything else is refused before the first message."""
    with pytest.raises(InvalidParameter, match="max_staleness is"):
        ShardMod(max_staleness=bound)
