"""Clients that share a learngene and keep their other layers."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from safetensors.numpy import load_file

from modelkin.integrations.flower import LearngeneMod, LearngeneRound, LearngeneStrategy
from tests.sdk.integrations.flower.learngenes.partial_federation import (
    NODES,
    PRIVATE,
    SHARED,
    NotingGrid,
    arrays_of,
    averaging,
    examples,
    grid_of,
    learngene_mod,
    own,
    run,
    step,
    trainings,
    values,
)
from tests.sdk.integrations.flower.shards.sharded_federation import sharded


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR, "flwr")


def mean_step(name: str, nodes: Any, weights: Any = examples) -> Any:
    """The weighted mean of what nodes add in a round."""
    total = sum(weights(node) for node in nodes)
    return sum(step(node)[name] * weights(node) for node in nodes) / total


def test_the_learngene_is_the_mean_and_private_layers_never_leave() -> None:
    """Three rounds, with sharing that tightens: no byte of a private layer is in any message."""
    grid = grid_of()
    strategy = LearngeneStrategy(averaging(), depth=1)
    result = run(grid, strategy, 3)
    for name in SHARED:
        expected = values()[name] + 3 * mean_step(name, NODES)
        np.testing.assert_allclose(result.arrays[name].numpy(), expected, atol=1e-5)
    for name in PRIVATE:
        np.testing.assert_array_equal(result.arrays[name].numpy(), values()[name])
    assert set(SHARED) == grid.returned
    carried = b"".join(grid.carried)
    for node in NODES:
        kept = grid.state(node)["modelkin-learngene"]
        for name in PRIVATE:
            now = kept[name].numpy()  # type: ignore[union-attr]
            np.testing.assert_allclose(now, own(node)[name] + 3 * step(node)[name], atol=1e-5)
            assert now.tobytes() not in carried
            assert own(node)[name].tobytes() not in carried


def test_sharing_tightens_with_nodes_that_agree() -> None:
    """All layers at first, then fewer, down to the learngene; the others get it alone."""
    reports: list[LearngeneRound] = []
    grid = grid_of(range(1, 5), tightens=True)
    run(grid, LearngeneStrategy(averaging(), depth=1, on_round=reports.append), 5)
    assert [3, 2, 1, 1, 1] == [report.layers for report in reports]
    sent = [len(arrays_of(message)) for message in trainings(grid)]
    assert [4] * 4 + [3] * 4 + [2] * 12 == sent
    strict = grid_of(range(1, 5))
    run(strict, LearngeneStrategy(averaging(), depth=1), 5)
    assert [4] * 4 + [2] * 16 == [len(arrays_of(message)) for message in trainings(strict)]


def test_costs_are_those_of_the_messages() -> None:
    """By round and node, both directions, as a grid sees them serialised."""
    grid = grid_of(range(1, 4))
    strategy = LearngeneStrategy(averaging(), depth=1, tighten=0)
    run(grid, strategy, 2)
    assert {1, 2} == set(strategy.costs)
    total = sum(each.total for each in strategy.costs.values())
    assert sum(map(len, grid.carried)) == total
    for node in range(1, 4):
        assert grid.up[node] == sum(each.up[node] for each in strategy.costs.values())


def test_evaluation_is_of_the_whole_model() -> None:
    """A node evaluates the learngene with its own layers; only the learngene travels."""
    grid = grid_of(range(1, 4))
    inner = averaging()
    inner.fraction_evaluate = 1.0
    result = run(grid, LearngeneStrategy(inner, depth=1, tighten=0), 1)
    sent = [m for m in grid.sent if m.metadata.message_type == "evaluate"]
    assert 3 == len(sent)
    assert all(set(SHARED) == set(arrays_of(message)) for message in sent)
    shared = sum(result.arrays[name].numpy().sum() for name in SHARED)
    totals = {
        node: shared + sum((own(node)[n] + step(node)[n]).sum() for n in PRIVATE)
        for node in range(1, 4)
    }
    weights = [examples(node) for node in totals]
    expected = np.average(list(totals.values()), weights=weights)
    assert result.evaluate_metrics_clientapp[1]["total"] == pytest.approx(expected, abs=1e-3)


def test_equal_weights_are_the_papers() -> None:
    """Each member counts alike."""
    grid = grid_of(range(1, 5))
    result = run(grid, LearngeneStrategy(averaging(), depth=1, weights="equal"), 1)
    expected = values()["first.weight"] + mean_step("first.weight", range(1, 5), lambda _: 1)
    np.testing.assert_allclose(result.arrays["first.weight"].numpy(), expected, atol=1e-6)


LIES: dict[str, Any] = {
    "NaN": lambda found: found["first.weight"].fill(np.nan),
    "other shape": lambda found: found.update({"first.weight": np.ones((2, 2), np.float32)}),
    "other tensors": lambda found: found.update(other=np.ones(3, np.float32)),
    "no examples": lambda found: found.update(metrics={"num-examples": 0}),
    "all examples": lambda found: found.update(metrics={"num-examples": 1e307}),
    "other metrics": lambda found: found.update(metrics={"num-examples": 5, "more": 1}),
    "private": lambda found: found.update({"head.weight": np.ones((3, 4), np.float32)}),
}
REASONS = {
    "NaN": "NaN or infinite",
    "other shape": r"shape \[2, 2\]",
    "other tensors": "'other'",
    "no examples": "positive number",
    "all examples": "more than 2",
    "other metrics": "metrics differ",
    "private": "its private 'head.weight'",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_node_is_left_out(lie: str, caplog: pytest.LogCaptureFixture) -> None:
    """With the reason; the mean is that of the others."""
    caplog.set_level(logging.WARNING, "modelkin.integrations")

    def liar(message: Message, answer: Message) -> Message:
        if message.metadata.dst_node_id != 2:
            return answer
        found: dict[str, Any] = {n: np.array(v) for n, v in arrays_of(answer).items()}
        found["metrics"] = dict(next(iter(answer.content.metric_records.values())))
        LIES[lie](found)
        metrics = found.pop("metrics")
        return _answer(message, found, metrics)

    grid = grid_of(range(1, 6))
    grid.tamper = liar
    strategy = LearngeneStrategy(averaging(), depth=1, tighten=0)
    result = run(grid, strategy, 1)
    assert [2] == list(strategy.left_out)
    assert re.search(REASONS[lie], strategy.left_out[2])
    assert strategy.left_out[2] in caplog.text
    expected = values()["first.weight"] + mean_step("first.weight", [1, 3, 4, 5])
    np.testing.assert_allclose(result.arrays["first.weight"].numpy(), expected, atol=1e-6)


def _answer(message: Message, found: dict[str, Any], metrics: dict[str, Any]) -> Message:
    arrays = ArrayRecord({name: Array(each) for name, each in found.items()})
    records = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
    return Message(records, reply_to=message)


@pytest.mark.parametrize("shards", [False, True])
def test_a_metric_of_another_kind_reaches_no_function_of_the_app(
    shards: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A list where the others have a number: its node counts in no training and no evaluation."""
    seen: list[list[int]] = []

    def mean(records: list[RecordDict], weighted_by: str) -> MetricRecord:
        metrics: list[Any] = [next(iter(each.metric_records.values())) for each in records]
        seen.append(sorted(each[weighted_by] for each in metrics))
        return MetricRecord({"total": sum(each["total"] for each in metrics)})

    def change(node: int, new: dict[str, Any]) -> dict[str, Any]:
        return {**new, "metrics": {"num-examples": examples(node), "total": node / 2}}

    def liar(message: Message, answer: Message) -> Message:
        for metrics in answer.content.metric_records.values():
            if message.metadata.dst_node_id == 2 and "total" in metrics:
                metrics["total"] = [1.0, 2.0]
        return answer

    caplog.set_level(logging.WARNING, "modelkin.integrations")
    grid, plain = grid_of(range(1, 6), change=change, shards=shards), averaging()
    grid.tamper = liar
    plain.fraction_evaluate = 1.0
    plain.train_metrics_aggr_fn = plain.evaluate_metrics_aggr_fn = mean
    strategy = LearngeneStrategy(sharded(inner=plain) if shards else plain, depth=1, tighten=0)
    run(grid, strategy, 1)
    others = [examples(node) for node in (1, 3, 4, 5)]
    assert [others, others] == seen
    assert {
        2: "its metrics differ from those of most: total is a list of 2, not a number"
    } == strategy.left_out
    assert "node 2 is not in the evaluation: its metrics differ" in caplog.text


def test_a_killed_and_a_failing_node_are_left_out() -> None:
    """One never answers, one's app fails; the others are averaged."""

    def fail(node: int, new: dict[str, Any]) -> dict[str, Any]:
        if node == 3:
            raise RuntimeError("out of memory")
        return new

    grid = grid_of(range(1, 7), change=fail)
    grid.lose_answer = lambda message: message.metadata.dst_node_id == 2
    strategy = LearngeneStrategy(averaging(), depth=1, tighten=0)
    result = run(grid, strategy, 1)
    assert {2: "it did not answer in time", 3: "its app failed: out of memory"} == strategy.left_out
    expected = values()["first.weight"] + mean_step("first.weight", [1, 4, 5, 6])
    np.testing.assert_allclose(result.arrays["first.weight"].numpy(), expected, atol=1e-6)


def test_nothing_moves_below_min_members() -> None:
    """Two of three are not averaged: a mean of two shows each of them the other's."""
    grid = grid_of(range(1, 3))
    result = run(grid, LearngeneStrategy(averaging(), depth=1, tighten=0), 1)
    for name, before in values().items():
        np.testing.assert_array_equal(result.arrays[name].numpy(), before)


def test_a_node_refuses_another_model() -> None:
    """Arrays of another shape do not reach its app; the server's log says why."""
    grid = grid_of(range(1, 5))
    other = {"first.weight": np.ones((2, 2), np.float32), "first.bias": np.ones(6, np.float32)}
    strategy = LearngeneStrategy(averaging(), depth=1, tighten=0)
    arrays = ArrayRecord({n: Array(other.get(n, each)) for n, each in values().items()})
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1)
    assert {1, 2, 3, 4} == set(strategy.left_out)
    assert "it refused: array 'first.weight' has shape [2, 2]" in strategy.left_out[1]


def test_learngenes_are_saved(tmp_path: Path) -> None:
    """A safetensors file of the learngene alone, and a manifest with its digest."""
    grid = grid_of(range(1, 5))
    result = run(grid, LearngeneStrategy(averaging(), depth=1, save=tmp_path), 2)
    found = load_file(tmp_path / "all.safetensors")
    assert set(SHARED) == set(found)
    for name, each in found.items():
        np.testing.assert_array_equal(each, result.arrays[name].numpy())
    manifest = json.loads((tmp_path / "all.json").read_text())
    assert (4, 2) == (manifest["members"], manifest["rounds"])
    assert manifest["digest"].startswith("sha256:")
    assert {"all.safetensors", "all.json"} == {path.name for path in tmp_path.iterdir()}


def test_a_node_decides_what_leaves_it() -> None:
    """A server that asks for all layers, without a learngene, gets those of the node's choice."""
    grid = grid_of(range(1, 5))
    result = run(grid, averaging(), 2)
    assert set(SHARED) == grid.returned
    assert set(SHARED) == set(result.arrays)
    expected = values()["first.weight"] + 2 * mean_step("first.weight", range(1, 5))
    np.testing.assert_allclose(result.arrays["first.weight"].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["two records", "other arrays"])
def test_a_reply_that_may_hold_private_layers_stays(kind: str) -> None:
    """An app that answers with more than its model: the mod sends the reason, and no array."""
    found = ClientApp(mods=[learngene_mod(1)])

    @found.train()
    def train(message: Message, context: Context) -> Message:
        arrays = {name: Array(each) for name, each in arrays_of(message).items()}
        records: dict[str, Any] = {"arrays": ArrayRecord(arrays)}
        if kind == "two records":
            records["more"] = ArrayRecord({"x": arrays["head.weight"]})
        else:
            records["arrays"] = ArrayRecord({**arrays, "x": arrays["head.weight"]})
        return Message(RecordDict(records), reply_to=message)

    grid = NotingGrid({1: found})
    strategy = LearngeneStrategy(averaging(min_train_nodes=1, min_available_nodes=1), depth=1)
    run(grid, strategy, 1)
    assert set() == grid.returned
    assert strategy.left_out[1].startswith("it refused: ")


def test_a_node_that_lost_its_state_begins_again() -> None:
    """Its private layers are the initial ones; the learngene is what the server sent."""
    grid = grid_of(range(1, 5))
    run(grid, LearngeneStrategy(averaging(), depth=1, tighten=0), 1)
    grid.state(2).clear()
    run(grid, LearngeneStrategy(averaging(), depth=1, tighten=0), 1)
    for node, rounds in ((2, 1), (3, 2)):
        state = grid.state(node)["modelkin-learngene"]
        assert isinstance(state, ArrayRecord)
        expected = own(node)["head.weight"] + rounds * step(node)["head.weight"]
        np.testing.assert_allclose(state["head.weight"].numpy(), expected, atol=1e-5)


def test_running_statistics_stay_private() -> None:
    """They and whole numbers are in no learngene, but with buffers=True the floats are."""
    arrays = {
        "0.weight": np.ones((2, 2), np.float32),
        "1.weight": np.ones(2, np.float32),
        "1.running_mean": np.ones(2, np.float32),
        "1.num_batches_tracked": np.array(3),
        "2.weight": np.ones(2, np.float32),
    }
    for buffers, expected in ((False, {"0.weight", "1.weight"}), (True, {*list(arrays)[:3]})):
        mods = [LearngeneMod(lambda: arrays, depth=2, buffers=buffers)]
        grid = NotingGrid({node: _still(mods) for node in range(1, 4)})
        strategy = LearngeneStrategy(averaging(), depth=2, tighten=0, buffers=buffers)
        begun = ArrayRecord({name: Array(each) for name, each in arrays.items()})
        result = strategy.start(grid=grid, initial_arrays=begun, num_rounds=1)
        assert expected == grid.returned
        assert {} == strategy.left_out
        assert begun["1.num_batches_tracked"] == result.arrays["1.num_batches_tracked"]


def _still(mods: list[Any]) -> ClientApp:
    """A client that returns what it got."""
    found = ClientApp(mods=mods)

    @found.train()
    def train(message: Message, context: Context) -> Message:
        arrays = ArrayRecord({name: Array(each) for name, each in arrays_of(message).items()})
        metrics = MetricRecord({"num-examples": 3})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return found
