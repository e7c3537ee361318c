"""Supports or data, shards and learngenes together: the order of mods and of strategies."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp

from modelkin.errors import InvalidParameter
from modelkin.integrations.flower import (
    BufferedStrategy,
    ClusteredStrategy,
    LearngeneMod,
    LearngeneStrategy,
    ShardedStrategy,
    ShardMod,
    SupportMod,
)
from tests.sdk.integrations.flower import federation
from tests.sdk.integrations.flower.learngenes.partial_federation import (
    NODES,
    NotingGrid,
    app,
    averaging,
    data_mod,
    learngene_mod,
    run,
)
from tests.sdk.integrations.flower.shards.sharded_federation import sharded

ODD, EVEN = (1, 3, 5, 7), (2, 4, 6, 8)
TRUNK, HEAD = ("0.weight", "0.bias"), ("2.weight", "2.bias")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR, "flwr")


def buffered() -> Any:
    """A strategy that has no rounds."""
    return BufferedStrategy(size=2)


def whole() -> LearngeneMod:
    """A mod that shares the first layer of a whole network."""
    return LearngeneMod(lambda: federation.mlp().state_dict(), depth=1)


def shared(inner: Any, make: Callable[[], ClientApp]) -> tuple[ClusteredStrategy, NotingGrid]:
    """Two rounds of learngenes in clusters by supports, over a strategy and with such clients."""
    grid = NotingGrid({node: make() for node in NODES})
    strategy = ClusteredStrategy(LearngeneStrategy(inner, depth=1, tighten=0), per_cluster=True)
    arrays = ArrayRecord(federation.mlp().state_dict())
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=2)
    return strategy, grid


@pytest.mark.slow
@pytest.mark.parametrize("support_mod", ["first", "second", "last"])
def test_supports_shards_and_learngenes(support_mod: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each cluster's learngene is what it is without shards; private layers leave no node."""
    caplog.set_level(logging.WARNING, "modelkin.integrations")

    def make() -> ClientApp:
        mods: dict[str, tuple[list[Any], list[Any]]] = {
            "first": ([], [ShardMod(), whole()]),
            "second": ([ShardMod()], [whole()]),
            "last": ([ShardMod(), whole()], []),
        }
        outer, inner = mods[support_mod]
        return federation.app(SupportMod(), *outer, inner=inner)

    expected, _ = shared(averaging(), lambda: federation.app(SupportMod(), inner=[whole()]))
    strategy, grid = shared(sharded(), make)
    assert strategy.clusters is not None
    assert {ODD, EVEN} == set(strategy.clusters.members.values())
    assert {0, 1} == strategy.cluster_arrays.keys()
    for cluster, arrays in strategy.cluster_arrays.items():
        for name in (*TRUNK, *HEAD):
            found, alone = arrays[name].numpy(), expected.cluster_arrays[cluster][name].numpy()
            np.testing.assert_allclose(found, alone, atol=1e-6)
    assert not grid.returned & {*TRUNK, *HEAD}
    carried = b"".join(grid.carried)
    for node in NODES:
        private = grid.state(node)["modelkin-learngene"]
        assert isinstance(private, ArrayRecord)
        assert not any(private[name].numpy().tobytes() in carried for name in HEAD)
    assert [] == caplog.records


def test_a_learngene_mod_before_the_shards_says_the_order() -> None:
    """No node joins, and each says which order is right; no training has begun."""
    mods = [data_mod(), learngene_mod(1), ShardMod(conceal=False)]
    grid = NotingGrid({node: app(mods) for node in NODES})
    strategy = LearngeneStrategy(sharded(conceal=False), depth=1)
    with pytest.raises(InvalidParameter, match=r"ShardMod is behind LearngeneMod.* mods=\[DataMod"):
        run(grid, strategy)
    assert set() == grid.returned


def test_a_data_mod_behind_the_shards_says_the_order() -> None:
    """Its node is in no cluster for that reason, and is averaged as before."""
    kin = {node: app([data_mod(), ShardMod(), learngene_mod(node)]) for node in NODES if node != 1}
    grid = NotingGrid({1: app([ShardMod(), data_mod(), learngene_mod(1)]), **kin})
    strategy = ClusteredStrategy(
        LearngeneStrategy(sharded(), depth=1), by="data", per_cluster=True, patience=0.2
    )
    run(grid, strategy)
    assert strategy.clusters is not None
    assert {1} == strategy.clusters.left_out.keys()
    assert "DataMod is behind ShardMod or missing" in strategy.clusters.left_out[1]
    assert {(3, 5, 7), EVEN} == set(strategy.clusters.members.values())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: ShardedStrategy(LearngeneStrategy(averaging()), aggregators=3),
            r"LearngeneStrategy\(ShardedStrategy\(\.\.\.\)\), the other way around",
        ),
        (
            lambda: ShardedStrategy(ClusteredStrategy(averaging()), aggregators=3),
            r"ClusteredStrategy\(ShardedStrategy\(\.\.\.\)\), the other way around",
        ),
        (lambda: LearngeneStrategy(ClusteredStrategy(averaging())), "inside ClusteredStrategy"),
        (lambda: LearngeneStrategy(LearngeneStrategy(averaging())), "use one"),
        (lambda: ClusteredStrategy(ClusteredStrategy(averaging())), "inside ClusteredStrategy"),
        (lambda: ClusteredStrategy(buffered()), "inside ClusteredStrategy"),
    ],
)
def test_strategies_in_another_order_are_refused(make: Callable[[], Any], said: str) -> None:
    """Before the first message, with the right order."""
    with pytest.raises(InvalidParameter, match=said) as raised:
        make()
    assert "strategy" == raised.value.field
