"""Who and how: clusters by supports, each averaged in shards of its own."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import Result

from modelkin.errors import InvalidParameter
from modelkin.integrations.flower import (
    ClusteredStrategy,
    RoundClusters,
    RoundReport,
    ShardMod,
    SupportMod,
)
from tests.sdk.integrations.flower.federation import LocalGrid, app, mlp
from tests.sdk.integrations.flower.shards.sharded_federation import averaging, sharded, step_of

NODES = range(1, 9)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR)


def run(grid: LocalGrid, strategy: ClusteredStrategy, rounds: int) -> Result:
    """All rounds, from the same weights."""
    arrays = ArrayRecord(mlp().state_dict())
    return strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds)


def plain_grid() -> LocalGrid:
    """Clients that send their supports and their models."""
    return LocalGrid({node: app(SupportMod()) for node in NODES})


def sharded_grid() -> LocalGrid:
    """Clients that send their supports, and their models in shards."""
    return LocalGrid({node: app(SupportMod(), ShardMod(conceal=False)) for node in NODES})


def assert_same(left: ArrayRecord, right: ArrayRecord) -> None:
    """Two models are alike but for the rounding."""
    for name, array in left.items():
        np.testing.assert_allclose(array.numpy(), right[name].numpy(), atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("conceal", [False, True])
def test_each_cluster_averages_alone(conceal: bool) -> None:
    """Two clusters of four have the models that they have in the clear, round after round."""
    alone = ClusteredStrategy(averaging(), per_cluster=True)
    expected = run(plain_grid(), alone, 3)
    reports, found = list[RoundReport](), list[RoundClusters]()
    inner = sharded(reports, conceal=conceal)
    strategy = ClusteredStrategy(inner, per_cluster=True, on_clusters=found.append)
    result = run(sharded_grid(), strategy, 3)
    assert_same(result.arrays, expected.arrays)
    assert {0, 1} == strategy.cluster_arrays.keys()
    for cluster, arrays in strategy.cluster_arrays.items():
        assert_same(arrays, alone.cluster_arrays[cluster])
    members = {report.cluster: report.members for report in reports if report.server_round == 3}
    assert found[2].members == members
    assert 6 == len(reports)


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False])
def test_supports_and_shards_travel_side_by_side(
    first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Both mods in one app, in any order: the strategy clusters all clients without a model."""
    caplog.set_level(logging.WARNING, "modelkin.integrations")
    strategy = ClusteredStrategy(sharded())
    grid = (
        sharded_grid()
        if first
        else LocalGrid({node: app(SupportMod(), inner=[ShardMod()]) for node in NODES})
    )
    expected = run(plain_grid(), ClusteredStrategy(averaging()), 2)
    result = run(grid, strategy, 2)
    assert_same(result.arrays, expected.arrays)
    assert strategy.clusters is not None
    assert ({}, tuple(NODES)) == (dict(strategy.clusters.left_out), strategy.clusters.nodes)
    assert 2 == result.train_metrics_clientapp[2]["modelkin-clusters"]
    trained = [message for message in grid.sent if step_of(message) == "train"]
    assert not [r for r in caplog.records if r.name == "modelkin.integrations"]
    assert "k" in trained[-1].content.config_records["modelkin"]


def test_small_clusters_get_the_strategys_model() -> None:
    """A cluster below min_members has no sum of its own; its members are averaged with others."""
    reports: list[RoundReport] = []
    strategy = ClusteredStrategy(sharded(reports, min_members=3), per_cluster=True)
    apps = {node: app(SupportMod(), ShardMod()) for node in (1, 3, 5, 7, 2, 4)}
    result = run(LocalGrid(apps), strategy, 1)
    assert 1 == len(strategy.cluster_arrays)
    assert [(1, 3, 5, 7), ()] == [report.members for report in reports]
    assert {"2 members take part, 3 at least are averaged"} == set(reports[1].kept.values())
    (own,) = strategy.cluster_arrays.values()
    assert_same(result.arrays, own)


def test_each_round_says_which_clusters_were_too_few_to_average(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two of four kin reply in two rounds: log and reports say so each time, and why."""
    caplog.set_level(logging.WARNING, "modelkin.integrations")
    reports: list[RoundReport] = []
    strategy = ClusteredStrategy(sharded(reports, min_members=3, conceal=False), per_cluster=True)
    apps = {node: app(SupportMod(), ShardMod(conceal=False)) for node in (1, 3, 5, 7, 2, 4)}
    run(LocalGrid(apps), strategy, 2)
    small = strategy.cluster_of(2)
    assert small is not None
    why = "2 of its clients replied, and min_members is 3"
    assert [{small: why}] * len(reports) == [report.skipped for report in reports]
    logged = [record.getMessage() for record in caplog.records]
    for server_round in (1, 2):
        line = f"round {server_round}: cluster {small} is not averaged: {why}"
        assert 1 == sum(message.startswith(line) for message in logged)


def test_reports_have_the_names_of_members() -> None:
    """A round's report names its members in their order, where they sent names."""
    reports: list[RoundReport] = []
    mods = SupportMod(name=lambda context: f"ward-{context.node_id}"), ShardMod(conceal=False)
    grid = LocalGrid({node: app(*mods) for node in NODES})
    run(grid, ClusteredStrategy(sharded(reports, conceal=False), per_cluster=True), 1)
    assert 2 == len(reports)
    for report in reports:
        assert 4 == len(report.members)
        assert tuple(f"ward-{node}" for node in report.members) == report.named


def test_a_client_is_in_one_sum_of_a_round() -> None:
    """No two sums of a round differ by one member: each client sends for one set alone."""
    grid = sharded_grid()
    run(grid, ClusteredStrategy(sharded(), per_cluster=True), 1)
    asked: list[Message] = [message for message in grid.sent if step_of(message) == "send"]
    assert sorted(NODES) == sorted(message.metadata.dst_node_id for message in asked)
    rounds = {str(message.content.config_records["modelkin-shards"]["round"]) for message in asked}
    assert 2 == len(rounds)


def test_own_masks_are_refused_for_clusters_with_models() -> None:
    """Shifts are of one set of clients: said before the first message."""
    inner = sharded(conceal=False, one_in=4, masks="own")
    with pytest.raises(InvalidParameter, match="masks='own'"):
        ClusteredStrategy(inner, per_cluster=True)
    ClusteredStrategy(inner)
