"""Strategies of Flower on averages in shards: the same models."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi

from modelkin.integrations.flower import RoundReport, ShardedStrategy, ShardMod
from modelkin.integrations.flower._arrays import difference, values_of
from tests.sdk.integrations.flower.federation import LocalGrid
from tests.sdk.integrations.flower.shards.sharded_federation import (
    RecordingGrid,
    app,
    averaging,
    exact,
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

NODES = range(1, 6)
OWN: dict[str, Any] = {"conceal": False, "one_in": 4, "masks": "own"}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settings", "tolerance"),
    [
        (FedAvg, {}, 1e-6),
        (FedAvgM, {"server_momentum": 0.9}, 2e-6),
        (FedAdam, {}, 1e-5),  # it divides by square roots, of values near its tau of 1e-3
        (FedYogi, {}, 1e-5),
        (FedAdagrad, {}, 1e-4),  # likewise, in the first round of values near zero
    ],
)
@pytest.mark.parametrize("conceal", [False, True])
def test_strategies_give_what_they_give_alone(
    kind: type[FedAvg], settings: dict[str, Any], tolerance: float, conceal: bool
) -> None:
    """Three rounds of each strategy end with its own model and metrics, plain and concealed."""
    alone = run(LocalGrid({node: app([]) for node in NODES}), averaging(kind, **settings), 3)
    inside = sharded(inner=averaging(kind, **settings), conceal=conceal)
    found = run(grid_of(NODES), inside, 3)
    np.testing.assert_allclose(vector(found.arrays), vector(alone.arrays), atol=tolerance)
    for number, metrics in alone.train_metrics_clientapp.items():
        assert dict(metrics) == pytest.approx(dict(found.train_metrics_clientapp[number]))


def test_the_average_is_exact_for_any_number_of_shards() -> None:
    """Plain averages have the same bits for 1, 2, 3 and 5 shards, within 1e-6 of float64."""
    found = [
        vector(run(grid_of(NODES), sharded(aggregators=a, conceal=False), 2).arrays)
        for a in (1, 2, 3, 5)
    ]
    for other in found[1:]:
        assert found[0].tobytes() == other.tobytes()
    np.testing.assert_allclose(found[0], exact(NODES, 2), atol=1e-6)


def test_reports_say_who_was_in_a_round() -> None:
    """Each round is reported with its members, one attempt and the roster that members log."""
    reports: list[RoundReport] = []
    run(grid_of(NODES), sharded(reports), 2)
    assert [1, 2] == [report.server_round for report in reports]
    for report in reports:
        assert (tuple(NODES), {}, {}, 1) == (
            report.members,
            report.refused,
            report.kept,
            report.attempts,
        )
        assert 64 == len(report.digest)
        assert report.bytes > 4 * 1033 * 5
        assert 1.0 == report.peak


def test_one_value_in_c_changes_one_value_in_c() -> None:
    """With one mask, the kept coordinates move by c times their mean and no other moves."""
    found = vector(run(grid_of(NODES), sharded(one_in=4)).arrays)
    before = vector(model())
    moved = np.flatnonzero(found != before)
    assert abs(moved.size - before.size / 4) < 4
    expected = before + 4 * (exact(NODES) - before)
    np.testing.assert_allclose(found[moved], expected[moved], atol=1e-6)


@pytest.mark.slow
def test_own_masks_come_closer_round_by_round() -> None:
    """Shifts make up for what is not sent: the same updates each round are learned in time."""

    rounds, before = 40, vector(model())
    expected = rounds * (exact(NODES) - before)
    found = vector(run(grid_of(NODES, steady), sharded(**OWN), rounds).arrays) - before
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 0.15  # .29 without shifts


def test_rounding_to_int8_is_unbiased_and_close() -> None:
    """Values rounded to 127 levels average to within one level, of the largest value of 1."""
    found = vector(run(grid_of(NODES), sharded(conceal=False, quantize="int8")).arrays)
    error = found - exact(NODES)
    assert 0 < np.abs(error).max() < 1 / 127
    assert abs(error.mean()) < 5 * error.std() / np.sqrt(error.size)


@pytest.mark.parametrize("rule", ["median", "trimmed_mean"])
def test_rules_are_by_coordinate(rule: str) -> None:
    """A rule of the aggregators gives what numpy gives on all updates; one outlier is no matter."""

    def lie(node: int, server_round: int, new: dict[str, Any]) -> dict[str, Any]:
        return {n: np.asarray(a * (1e6 if node == 2 else 1), a.dtype) for n, a in new.items()}

    before = vector(model())
    steps = []
    for node in NODES:
        step = flat(update(node, 1))
        steps.append((before + step) * 1e6 - before if node == 2 else step)
    ordered = np.sort(np.stack(steps), axis=0)
    expected = ordered[2] if rule == "median" else ordered[1:-1].mean(axis=0)
    found = vector(run(grid_of(NODES, lie), sharded(conceal=False, rule=rule)).arrays)
    np.testing.assert_allclose(found, before + expected, atol=1e-5, rtol=1e-5)


def test_the_strategys_own_functions_get_all_metrics() -> None:
    """train_metrics_aggr_fn is called once a round, with the records of all members."""
    calls: list[list[RecordDict]] = []

    def largest(records: list[RecordDict], key: str) -> MetricRecord:
        calls.append(records)
        return MetricRecord({"largest": max(float(r["metrics"]["loss"]) for r in records)})  # type: ignore[arg-type]

    inner = averaging(train_metrics_aggr_fn=largest)
    result = run(grid_of(NODES), sharded(inner=inner), 2)
    assert [len(NODES)] * 2 == [len(records) for records in calls]
    assert {"largest": 5 / 4} == dict(result.train_metrics_clientapp[2])
    assert inner.train_metrics_aggr_fn is largest


def test_buffers_of_whole_numbers_stay_whole() -> None:
    """A counter of steps is averaged and rounded, and keeps its type."""
    arrays = run(grid_of(NODES), sharded(), 2).arrays
    assert 9 == arrays["steps"].numpy()[0]
    assert "int64" == arrays["steps"].dtype


def test_noise_of_flowers_own_mod_is_in_what_is_sealed() -> None:
    """LocalDpMod behind ShardMod adds its noise before anything is sent."""
    noisy = {node: app([ShardMod(), LocalDpMod(100.0, 0.5, 1.0, 1e-2)]) for node in NODES}
    found = vector(run(RecordingGrid(noisy), sharded()).arrays)
    noise = 0.5 * np.sqrt(2 * np.log(125)) * np.sqrt(sum(w**2 for w in _shares()))
    assert np.std(found - exact(NODES)) == pytest.approx(noise, rel=0.15)


def _shares() -> list[float]:
    weights = [10 + 7 * node for node in NODES]
    return [weight / sum(weights) for weight in weights]


def test_a_group_secret_keeps_others_out() -> None:
    """With a secret all clients average; who has another one is named, and the rest is exact."""
    secret = dict.fromkeys(range(1, 7), b"0123456789abcdef")
    secret[6] = b"another secret!!"
    grid = RecordingGrid({n: app([ShardMod(s, may_aggregate=n != 6)]) for n, s in secret.items()})
    reports: list[RoundReport] = []
    found = vector(run(grid, sharded(reports)).arrays)
    (report,) = reports
    assert (tuple(NODES), [6], 2) == (report.members, list(report.refused), report.attempts)
    assert "does not open" in report.refused[6]
    np.testing.assert_allclose(found, exact(NODES), atol=1e-6)


def test_neutral_nodes_aggregate_and_never_train() -> None:
    """With as many neutral nodes as shards, no client combines and no neutral node trains."""
    apps = {n: app([ShardMod(may_aggregate=n > 5)]) for n in range(1, 9)}
    grid = RecordingGrid(apps, {n: {"modelkin-neutral": 1} for n in (6, 7, 8)})
    reports: list[RoundReport] = []
    found = vector(run(grid, sharded(reports)).arrays)
    steps = {(step_of(m), m.metadata.dst_node_id) for m in grid.sent}
    assert {6, 7, 8} == {node for step, node in steps if step == "combine"}
    assert set(NODES) == {node for step, node in steps if step == "train"}
    np.testing.assert_allclose(found, exact(NODES), atol=1e-6)


def test_replicas_compute_each_shard_twice() -> None:
    """With two replicas each aggregator combines two shards, and the result is the same."""
    grid = grid_of(NODES)
    found = vector(run(grid, sharded(replicas=2)).arrays)
    asked = [m for m in grid.sent if step_of(m) == "combine"]
    names = [list(message.content.array_records["modelkin-shard-cells"]) for message in asked]
    assert [2, 2, 2] == [len({name.split("/")[0] for name in each}) for each in names]
    np.testing.assert_allclose(found, exact(NODES), atol=1e-6)


def test_sampled_clients_average_among_themselves() -> None:
    """Where a strategy samples, aggregators may be others, and the members are the sample."""
    reports: list[RoundReport] = []
    inner = averaging(fraction_train=0.6, min_train_nodes=3)
    found = run(grid_of(range(1, 11)), sharded(reports, inner)).arrays
    assert 6 == len(reports[0].members)
    np.testing.assert_allclose(vector(found), exact(reports[0].members), atol=1e-6)


def test_nodes_may_come_later() -> None:
    """A node that connects later joins before the next round, in a new roster."""
    grid, reports = grid_of(range(1, 7)), list[RoundReport]()
    strategy = sharded(reports, averaging(min_available_nodes=3))
    grid.away = {6}
    strategy.start(grid=grid, initial_arrays=model(), num_rounds=1)
    grid.away = set()
    strategy.start(grid=grid, initial_arrays=model(), num_rounds=1)
    assert [(1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6)] == [report.members for report in reports]
    assert reports[0].digest != reports[1].digest


def test_the_strategy_shows_its_settings() -> None:
    """A summary names the settings, and the wrapped strategy's follow."""
    strategy = ShardedStrategy(averaging(), aggregators=2)
    strategy.summary()
    assert 3 == strategy.min_members


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (np.arange(6, dtype="f4").reshape(2, 3), np.ones((2, 3), "f4")),
        (np.arange(6, dtype="f4").reshape(2, 3), np.asfortranarray(np.eye(2, 3, dtype="f4"))),
        (np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.ones((2, 3), "f4")),
        (np.arange(3, dtype=">f8"), np.ones(3, "f2")),
        (np.array(7), np.array(9)),
        (np.array([3], "u8"), np.array([1], "u8")),
        (np.zeros((0, 4), "f4"), np.zeros((0, 4), "f4")),
    ],
)
def test_updates_are_differences_of_arrays_as_they_are_stored(
    old: npt.NDArray[Any], new: npt.NDArray[Any]
) -> None:
    """Of any order, byte order, number type and shape, as float32 in C order."""
    before, after = (ArrayRecord({"a": Array(each)}) for each in (old, new))
    expected = (new.astype(float) - old.astype(float)).ravel().astype(np.float32)
    assert expected.tolist() == difference(after, before).tolist()
    assert new.tolist() == values_of(after["a"]).tolist()
