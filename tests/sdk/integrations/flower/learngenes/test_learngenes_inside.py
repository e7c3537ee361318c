"""Learngenes with averages in shards inside, and in clusters by supports."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy

import modelkin
from modelkin.errors import InvalidParameter
from modelkin.federation.additions import cover, holders
from modelkin.integrations.flower import (
    ClusteredStrategy,
    LearngeneMod,
    LearngeneStrategy,
    ShardedStrategy,
    SupportMod,
    hand_over,
)
from modelkin.torch import fisher_importance
from tests.sdk.integrations.flower import federation
from tests.sdk.integrations.flower.learngenes.partial_federation import (
    NODES,
    PRIVATE,
    SHARED,
    NotingGrid,
    arrays_of,
    averaging,
    examples,
    grid_of,
    run,
    step,
    trainings,
    values,
)
from tests.sdk.integrations.flower.shards.sharded_federation import sharded

ODD, EVEN = (1, 3, 5, 7), (2, 4, 6, 8)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR, "flwr")


def mean_step(name: str, nodes: Any) -> Any:
    """The weighted mean of what nodes add in a round."""
    return sum(step(n)[name] * examples(n) for n in nodes) / sum(examples(n) for n in nodes)


@pytest.mark.slow
@pytest.mark.parametrize("conceal", [False, True])
def test_the_learngene_alone_is_sharded(conceal: bool) -> None:
    """By data, in two clusters: each averages its learngene in shards of its own."""
    grid = grid_of(shards=True)
    inner = sharded(conceal=conceal)
    strategy = ClusteredStrategy(
        LearngeneStrategy(inner, depth=1), by="data", per_cluster=True, patience=0.2
    )
    run(grid, strategy, 2)
    assert {0, 1} == set(strategy.cluster_arrays)
    for nodes, arrays in zip((ODD, EVEN), strategy.cluster_arrays.values(), strict=True):
        for name in SHARED:
            expected = values()[name] + 2 * mean_step(name, nodes)
            np.testing.assert_allclose(arrays[name].numpy(), expected, atol=1e-5)
        for name in PRIVATE:
            np.testing.assert_array_equal(arrays[name].numpy(), values()[name])
    cells = [name for name in grid.returned if name.count("/") == 2]
    assert cells
    assert not grid.returned & {*SHARED, *PRIVATE}
    carried = b"".join(grid.carried)
    for node in NODES:
        state = grid.state(node)["modelkin-learngene"]
        assert isinstance(state, ArrayRecord)
        assert not any(state[name].numpy().tobytes() in carried for name in PRIVATE)
    assert sum(map(len, grid.carried)) == sum(each.total for each in strategy.costs.values())


def test_a_killed_node_is_left_out_of_shards() -> None:
    """The others' learngene is exact."""
    grid = grid_of(range(1, 6), shards=True)
    grid.lose_answer = lambda message: (
        message.metadata.dst_node_id == 2 and bool(message.content.array_records)
    )
    strategy = LearngeneStrategy(sharded(conceal=False), depth=1)
    result = run(grid, strategy, 1)
    assert "it did not answer in time" == strategy.left_out[2]
    found, before = result.arrays["first.weight"].numpy(), values()["first.weight"]
    moved = found != before  # a shard that the killed node held keeps its values
    assert moved.any()
    expected = before + mean_step("first.weight", [1, 3, 4, 5])
    np.testing.assert_allclose(found[moved], expected[moved], atol=1e-5)


def test_a_node_that_shares_fewer_layers_says_so_behind_shards() -> None:
    """Its reason arrives, not that it has no arrays."""
    grid = grid_of(range(1, 6), shards=True)
    strategy = LearngeneStrategy(sharded(conceal=False), depth=2)
    run(grid, strategy, 1)
    assert set(range(1, 6)) == set(strategy.left_out)


def test_a_small_cluster_and_a_late_joiner_with_shards() -> None:
    """Two members have no average; with a third they have one, and keep it when one is away."""
    grid = grid_of((1, 3, 5, 7, 2, 4, 6), shards=True)
    grid.away = {6}
    strategy = ClusteredStrategy(
        LearngeneStrategy(sharded(), depth=1), by="data", per_cluster=True, patience=0.2
    )
    run(grid, strategy, 1)
    assert {0} == set(strategy.cluster_arrays)
    grid.away = set()
    run(grid, strategy, 1)
    assert strategy.clusters is not None
    assert {0: ODD, 1: (2, 4, 6)} == strategy.clusters.members
    first = [m for m in trainings(grid) if m.metadata.dst_node_id == 6]
    assert set(SHARED) == set(arrays_of(first[0]))
    before = strategy.cluster_arrays[1]["first.weight"].numpy()
    np.testing.assert_allclose(
        before, values()["first.weight"] + mean_step("first.weight", (2, 4, 6)), atol=1e-5
    )
    grid.away = {4}
    run(grid, strategy, 1)
    np.testing.assert_array_equal(strategy.cluster_arrays[1]["first.weight"].numpy(), before)


@pytest.mark.parametrize(
    ("inner", "settings", "field"),
    [
        ({}, {"tighten": 0.4}, "tighten"),
        ({}, {"weights": "equal"}, "weights"),
        ({}, {"min_members": 4}, "min_members"),
        (None, {"weights": "best"}, "weights"),
        (None, {"tighten": 2}, "tighten"),
        (None, {"min_members": 0}, "min_members"),
        (None, {"depth": 0}, "depth"),
        (None, {"depth": 1, "share": 0.5}, "depth"),
        (None, {"space": "x"}, "space"),
        (None, {"model": "x"}, "model"),
    ],
)
def test_bad_arguments_are_named(
    inner: dict[str, Any] | None, settings: dict[str, Any], field: str
) -> None:
    """Before the first message."""
    strategy = averaging() if inner is None else ShardedStrategy(averaging(), aggregators=3)
    with pytest.raises(InvalidParameter) as caught:
        LearngeneStrategy(strategy, **settings)
    assert field == caught.value.field


def _supporting(node: int) -> ClientApp:
    """A client that hands over its importance, and shares its first layer."""
    mods: list[Any] = [SupportMod()]
    mods += [LearngeneMod(lambda: federation.mlp().state_dict(), depth=1)]
    found = ClientApp(mods=mods)

    @found.train()
    def train(message: Message, context: Context) -> Message:
        model, (inputs, labels) = federation.received(message), federation.examples(node)
        hand_over(fisher_importance(model, cross_entropy, [(inputs, labels)]))
        optimizer = torch.optim.SGD(model.parameters(), 0.2)
        for _ in range(3):
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        return federation.reply(message, model, {"num-examples": len(labels)})

    return found


def test_learngenes_in_clusters_by_supports() -> None:
    """Clusters are found after the first training; from then on each has a learngene."""
    grid = NotingGrid({node: _supporting(node) for node in NODES})
    inner = LearngeneStrategy(averaging(), depth=1, tighten=0)
    strategy = ClusteredStrategy(inner, per_cluster=True)
    arrays = ArrayRecord(federation.mlp().state_dict())
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=2)
    assert strategy.clusters is not None
    assert {ODD, EVEN} == set(strategy.clusters.members.values())
    assert {"0.weight", "0.bias"} == grid.returned
    sent = grid.sent[-len(NODES) :]
    got = {m.metadata.dst_node_id: arrays_of(m)["0.weight"] for m in sent}
    np.testing.assert_array_equal(got[1], got[3])
    assert not np.array_equal(got[1], got[2])
    assert "k" in sent[0].content.config_records["modelkin"]


def test_learngenes_weigh_by_what_supports_add() -> None:
    """Each cluster's learngene is the mean of its members by the weights asked for around it."""
    grid = NotingGrid({node: _supporting(node) for node in NODES})
    inner = LearngeneStrategy(averaging(), depth=1, tighten=0)
    strategy = ClusteredStrategy(inner, per_cluster=True, weights="cover")
    arrays = ArrayRecord(federation.mlp().state_dict())
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1)
    grid = NotingGrid({node: _supporting(node) for node in NODES})
    alone = LearngeneStrategy(averaging(), depth=1, tighten=0, min_members=1)
    single = ClusteredStrategy(alone, per_cluster=True, distance_threshold=1e-9)
    single.start(grid=grid, initial_arrays=arrays, num_rounds=1)

    def weighted(nodes: Any) -> Any:
        own = {node: single.cluster_of(node) or 0 for node in nodes}
        trained = [single.cluster_arrays[own[node]]["0.weight"].numpy() for node in nodes]
        supports = [_support_of(node) for node in nodes]
        return np.average(trained, axis=0, weights=np.array(cover(holders(supports))))

    for nodes in (ODD, EVEN):
        found = strategy.cluster_arrays[strategy.cluster_of(nodes[0]) or 0]["0.weight"].numpy()
        np.testing.assert_allclose(found, weighted(nodes), atol=1e-6)
    np.testing.assert_allclose(result.arrays["0.weight"].numpy(), weighted(NODES), atol=1e-6)


def _support_of(node: int) -> modelkin.Support:
    loader = [federation.examples(node)]
    return modelkin.select_support(fisher_importance(federation.mlp(), cross_entropy, loader))
