"""Clusters of nodes by their data, each with a learngene of its own, and nodes that join late."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from demo.planted import plant
from modelkin import Subspace, fit_subspace
from modelkin.core.clustering.clustering import agreement
from modelkin.errors import InvalidParameter
from modelkin.integrations.flower import (
    ClusteredStrategy,
    DataMod,
    LearngeneStrategy,
    RoundClusters,
    SupportMod,
)
from tests.sdk.integrations.flower.learngenes.partial_federation import (
    NODES,
    PRIVATE,
    SHARED,
    NotingGrid,
    app,
    arrays_of,
    averaging,
    data_mod,
    examples,
    floats_of,
    grid_of,
    group,
    learngene_mod,
    model,
    run,
    step,
    subspace,
    trainings,
    values,
)

ODD, EVEN = (1, 3, 5, 7), (2, 4, 6, 8)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR, "flwr")


def clustered(found: list[RoundClusters] | None = None, **settings: Any) -> ClusteredStrategy:
    """A strategy of learngenes by data."""
    own = {key: settings.pop(key) for key in ("save", "min_members") if key in settings}
    inner = LearngeneStrategy(averaging(), depth=1, tighten=0, **own)
    if found is not None:
        settings["on_clusters"] = found.append
    return ClusteredStrategy(inner, by="data", per_cluster=True, **{"patience": 0.2, **settings})


def mean_step(name: str, nodes: Any) -> Any:
    """The weighted mean of what nodes add in a round."""
    return sum(step(n)[name] * examples(n) for n in nodes) / sum(examples(n) for n in nodes)


def asks(grid: NotingGrid) -> list[int]:
    """The nodes that were asked for their subspace, in order."""
    return [
        message.metadata.dst_node_id
        for message in grid.sent
        if message.content.config_records.get("modelkin", ConfigRecord()).get("step") == "subspace"
    ]


def test_each_cluster_has_a_learngene_from_the_first_round_on() -> None:
    """Nodes are asked once, before any training; the learngene of each group is its own mean."""
    found: list[RoundClusters] = []
    grid, strategy = grid_of(), clustered(found)
    run(grid, strategy, 2)
    assert list(NODES) == asks(grid)
    assert [{0: ODD, 1: EVEN}] * 2 == [each.members for each in found]
    for nodes, arrays in zip((ODD, EVEN), strategy.cluster_arrays.values(), strict=True):
        for name in SHARED:
            expected = values()[name] + 2 * mean_step(name, nodes)
            np.testing.assert_allclose(arrays[name].numpy(), expected, atol=1e-5)
        for name in PRIVATE:
            np.testing.assert_array_equal(arrays[name].numpy(), values()[name])
    assert set(SHARED) == grid.returned


def test_costs_count_questions_too() -> None:
    """All bytes of the run, those of subspaces included, by node and direction."""
    grid, strategy = grid_of(range(1, 5)), clustered()
    run(grid, strategy, 2)
    assert sum(map(len, grid.carried)) == sum(each.total for each in strategy.costs.values())
    for node in range(1, 5):
        assert grid.up[node] == sum(each.up[node] for each in strategy.costs.values())
    assert strategy.costs[1].up[1] - strategy.costs[2].up[1] >= len(subspace(1).to_bytes())


def test_a_late_joiner_gets_its_clusters_learngene_with_its_first_message() -> None:
    """It is placed by the nearest centroid; the clusters of the others do not move."""
    found: list[RoundClusters] = []
    grid = grid_of()
    grid.away = {8}
    before: dict[int, dict[str, Any]] = {}

    def note(clusters: RoundClusters) -> None:
        found.append(clusters)
        before.update({c: floats_of(each) for c, each in strategy.cluster_arrays.items()})
        grid.away = set()

    strategy = clustered(on_clusters=note)
    run(grid, strategy, 1)
    learngene = dict(before[1])
    run(grid, strategy, 1)
    assert [*range(1, 9)] == asks(grid)
    assert [{0: ODD, 1: (2, 4, 6)}, {0: ODD, 1: EVEN}] == [each.members for each in found]
    first = next(m for m in trainings(grid) if m.metadata.dst_node_id == 8)
    got = arrays_of(first)
    assert set(SHARED) == set(got)
    for name in SHARED:
        np.testing.assert_array_equal(got[name], learngene[name])


def test_a_node_that_is_gone_is_in_no_cluster_until_it_is_back() -> None:
    """It is left out with the reason, is not asked again, and has its cluster when it is back."""
    found: list[RoundClusters] = []
    grid = grid_of()
    strategy = clustered(found)
    for away in (set[int](), {3}, set[int]()):
        grid.away = away
        run(grid, strategy, 1)
    assert [ODD, (1, 5, 7), ODD] == [each.members[0] for each in found]
    assert [{}, {3: "it is not connected"}, {}] == [each.left_out for each in found]
    assert (7, 7) == found[1].similarity.shape
    assert list(NODES) == asks(grid)


def test_a_node_of_foreign_data_is_in_no_cluster() -> None:
    """It is nearer to the mean of all than to a cluster: it gets the strategy's learngene."""

    def fit(context: Context) -> Subspace:
        if context.node_id != 9:
            return subspace(context.node_id)
        return fit_subspace(np.random.default_rng(1).normal(size=(400, 32)))

    grid = NotingGrid({n: app([DataMod(fit), learngene_mod(n)]) for n in range(1, 10)})
    grid.away = {9}
    strategy = clustered()
    run(grid, strategy, 1)
    grid.away = set()
    run(grid, strategy, 1)
    assert strategy.clusters is not None
    assert "near that of no cluster" in strategy.clusters.left_out[9]
    assert strategy.cluster_of(9) is None


def _broken(node: int) -> Any:
    """A node's answer to the question for its subspace, where it is not one."""
    good = subspace(node).to_bytes()
    return {
        1: {"subspace": good[:-3]},
        2: {"subspace": "no bytes"},
        3: {},
        4: {"subspace": good[:40] + b"\xff" * (len(good) - 40)},
    }[node]


def test_nodes_without_a_subspace_are_in_no_cluster() -> None:
    """Killed, false or without the mod: left out with the reason; all others are clustered."""

    def fail(context: Context) -> Subspace:
        if context.node_id == 5:
            raise OSError("no such file: x.npy")
        if context.node_id == 6:
            return fit_subspace(np.random.default_rng(6).normal(size=(400, 16)))
        return subspace(context.node_id)

    nodes = range(1, 17)
    apps = {n: app([*([] if n == 8 else [DataMod(fail)]), learngene_mod(n)]) for n in nodes}
    grid = NotingGrid(apps)

    def lie(message: Message, answer: Message) -> Message:
        node = message.metadata.dst_node_id
        if message.content.array_records or node > 4:
            return answer
        return Message(RecordDict({"modelkin": ConfigRecord(_broken(node))}), reply_to=message)

    grid.tamper = lie
    grid.lose_answer = lambda m: m.metadata.dst_node_id == 7 and not m.content.array_records
    strategy = clustered()
    run(grid, strategy, 2)
    assert strategy.clusters is not None
    left_out = strategy.clusters.left_out
    assert {1, 2, 3, 4, 5, 6, 7, 8} == set(left_out)
    for node in (2, 3):
        assert "it sent no subspace" in left_out[node]
    assert "no such file" in left_out[5]
    assert "m 16" in left_out[6]
    assert "it did not answer in time" == left_out[7]
    assert {0: (9, 11, 13, 15), 1: (10, 12, 14, 16)} == strategy.clusters.members
    assert len(nodes) == len(asks(grid))


def test_a_lost_node_is_asked_again_with_a_new_clustering() -> None:
    """Clusters that are found again keep their numbers, and include newcomers."""
    grid, strategy = grid_of(), clustered(recluster_every=2)
    lost = {"now": True}
    grid.lose_answer = lambda m: (
        lost["now"] and m.metadata.dst_node_id == 8 and not m.content.array_records
    )
    run(grid, strategy, 2)
    assert strategy.clusters is not None
    assert [8] == list(strategy.clusters.left_out)
    lost["now"] = False
    strategy.start(grid=grid, initial_arrays=model(), num_rounds=3)
    assert {0: ODD, 1: EVEN} == strategy.clusters.members
    assert [*NODES, 8] == asks(grid)


def test_a_small_cluster_keeps_its_learngene(tmp_path: Path) -> None:
    """Below min_members nothing of it moves; its members train on with what they have."""
    grid, strategy = grid_of(), clustered(save=tmp_path)
    run(grid, strategy, 1)
    before = floats_of(strategy.cluster_arrays[1])
    grid.lose_answer = lambda message: message.metadata.dst_node_id in {2, 4}
    run(grid, strategy, 1)
    for name, each in floats_of(strategy.cluster_arrays[1]).items():
        np.testing.assert_array_equal(each, before[name])
    manifest = json.loads((tmp_path / "cluster-1.json").read_text())
    assert (4, 1) == (manifest["members"], manifest["cluster"])
    names = {path.name for path in tmp_path.glob("*.safetensors")}
    assert {"all.safetensors", "cluster-0.safetensors", "cluster-1.safetensors"} == names


def test_classes_and_all_samples() -> None:
    """Nodes without labels among nodes with them are placed by all their samples."""

    def fit(context: Context) -> Subspace:
        node = context.node_id
        rng = np.random.default_rng([7, node])
        basis = np.random.default_rng([8, group(node)]).normal(size=(4, 32))
        samples = rng.normal(size=(400, 4)) @ basis
        labels = np.arange(400) % 4 + 10 * group(node)
        return fit_subspace(samples, None if node in {7, 8} else labels)

    grid = NotingGrid({n: app([DataMod(fit), learngene_mod(n)]) for n in NODES})
    strategy = clustered()
    run(grid, strategy, 1)
    assert strategy.clusters is not None
    assert {0: ODD, 1: EVEN} == strategy.clusters.members


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"by": "weights"}, "by"),
        ({"by": "data", "patience": 0}, "patience"),
        ({"by": "data", "recluster_every": 0}, "recluster_every"),
        ({"by": "data", "recluster_every": 1.5}, "recluster_every"),
        ({"recluster_every": 3}, "recluster_every"),
    ],
)
def test_bad_arguments_are_named(settings: dict[str, Any], field: str) -> None:
    """Before the first message."""
    with pytest.raises(InvalidParameter) as caught:
        ClusteredStrategy(averaging(), **settings)
    assert field == caught.value.field


def test_a_data_mod_needs_a_function() -> None:
    """Not a subspace: nodes of a simulation share one mod."""
    with pytest.raises(InvalidParameter):
        DataMod(subspace(1))  # type: ignore[arg-type]
    assert data_mod() is not None


def test_whole_models_in_clusters_by_data() -> None:
    """Without learngenes each cluster has a whole model; supports beside it are not needed."""
    grid = NotingGrid({n: app([SupportMod(), data_mod()]) for n in NODES})
    grid.away = {8}
    strategy = ClusteredStrategy(averaging(), by="data", per_cluster=True, patience=0.2)
    run(grid, strategy, 1)
    grid.away = set()
    before = floats_of(strategy.cluster_arrays[1])
    run(grid, strategy, 1)
    assert strategy.clusters is not None
    assert {0: ODD, 1: EVEN} == strategy.clusters.members
    first = next(m for m in trainings(grid) if m.metadata.dst_node_id == 8)
    for name, each in arrays_of(first).items():
        np.testing.assert_array_equal(each, before[name])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::modelkin.FewSamplesWarning")
@pytest.mark.parametrize("scenario", ["rotations", "styles", "permuted labels", "iid"])
def test_planted_groups_of_digits_are_found_in_a_federation(scenario: str) -> None:
    """Twelve nodes in four groups, whose number is not given; alike ones are one cluster."""
    clients = plant(scenario, num_clients=12, seed=0)

    def fit(context: Context) -> Subspace:
        at = context.node_id - 1
        return fit_subspace(clients.samples[at], clients.labels[at], samples_per_direction=1)

    grid = NotingGrid({n: app([DataMod(fit), learngene_mod(n)]) for n in range(1, 13)})
    strategy = clustered()
    run(grid, strategy, 1)
    assert strategy.clusters is not None
    assert 1.0 == agreement(clients.groups, strategy.clusters.clusters)
