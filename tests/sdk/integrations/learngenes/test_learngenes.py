"""Clients that share a learngene and keep their other layers."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from safetensors.numpy import load_file

from modelkin.integrations.flower import LearngeneRound, LearngeneStrategy
from tests.sdk.integrations.learngenes.partial_federation import (
    NODES,
    PRIVATE,
    SHARED,
    arrays_of,
    averaging,
    examples,
    grid_of,
    own,
    run,
    step,
    trainings,
    values,
)


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
    "other metrics": lambda found: found.update(metrics={"num-examples": 5, "more": 1}),
    "private": lambda found: found.update({"head.weight": np.ones((3, 4), np.float32)}),
}
REASONS = {
    "NaN": "NaN or infinite",
    "other shape": r"shape \[2, 2\]",
    "other tensors": "'other'",
    "no examples": "positive number",
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
