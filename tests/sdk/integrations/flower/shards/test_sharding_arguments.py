"""What cannot be averaged in shards is refused before the first message, with what to use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)

from modelkin.errors import InvalidParameter
from modelkin.integrations.flower import (
    AdapterStrategy,
    ClusteredStrategy,
    ShardedStrategy,
    ShardMod,
)
from tests.sdk.integrations.flower.shards.sharded_federation import (
    averaging,
    grid_of,
    model,
    run,
    sharded,
)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("aggregators", {"aggregators": 0}),
        ("aggregators", {"aggregators": 1.5}),
        ("one_in", {"one_in": 0}),
        ("one_in", {"one_in": 2.0}),
        ("masks", {"masks": "none"}),
        ("masks", {"masks": "own", "one_in": 4}),
        ("quantize", {"quantize": "int4", "conceal": False}),
        ("quantize", {"quantize": "int8"}),
        ("rule", {"rule": "krum", "conceal": False}),
        ("rule", {"rule": "median"}),
        ("rule", {"rule": "median", "conceal": False, "one_in": 2}),
        ("min_members", {"min_members": 0}),
        ("replicas", {"replicas": 4}),
        ("replicas", {"replicas": 0}),
        ("conceal", {"conceal": "yes"}),
        ("patience", {"patience": 0}),
        ("patience", {"patience": float("inf")}),
        ("patience", {"patience": "60"}),
    ],
)
def test_bad_settings_name_their_field(field: str, settings: dict[str, Any]) -> None:
    """An argument out of its range, or two that exclude each other, are refused at once."""
    with pytest.raises(InvalidParameter, match=field) as refused:
        sharded(**settings)
    assert field == refused.value.field


REFUSED: list[tuple[Callable[[], Strategy], str]] = [
    (FedMedian, r"FedMedian .* rule='median'"),
    (FedTrimmedAvg, r"FedTrimmedAvg .* rule='trimmed_mean'"),
    (Krum, r"^Krum .* rule='median'"),
    (MultiKrum, r"^MultiKrum .* rule='median'"),
    (Bulyan, r"^Bulyan .* rule='median'"),
    (lambda: QFedAvg(0.1), r"QFedAvg .* use FedAvg"),
    (FedXgbBagging, "FedXgbBagging .* alone"),
    (FedXgbCyclic, "FedXgbCyclic .* alone"),
    (
        lambda: DifferentialPrivacyServerSideFixedClipping(averaging(), 1.0, 1.0, 3),
        "ServerSideFixedClipping .* LocalDpMod",
    ),
    (
        lambda: DifferentialPrivacyClientSideFixedClipping(averaging(), 1.0, 1.0, 3),
        "ClientSideFixedClipping .* LocalDpMod",
    ),
    (
        lambda: DifferentialPrivacyServerSideAdaptiveClipping(averaging(), 0.1, 100),
        "ServerSideAdaptiveClipping .* LocalDpMod",
    ),
    (
        lambda: DifferentialPrivacyClientSideAdaptiveClipping(averaging(), 0.1, 100),
        "ClientSideAdaptiveClipping .* LocalDpMod",
    ),
    (AdapterStrategy, "AdapterStrategy .* alone"),
    (lambda: ClusteredStrategy(averaging()), r"ClusteredStrategy\(ShardedStrategy"),
    (sharded, "one ShardedStrategy"),
]


@pytest.mark.parametrize(("make", "why"), REFUSED)
def test_unfit_strategies_are_refused_by_name(make: Callable[[], Strategy], why: str) -> None:
    """What needs each client's model cannot be inside; the message says what to use instead."""
    strategy = make()
    with pytest.raises(InvalidParameter, match=why) as refused:
        ShardedStrategy(strategy, aggregators=2)
    assert "strategy" == refused.value.field


def test_derived_strategies_are_judged_by_what_they_derive_from() -> None:
    """FedProx works as FedAvg does; a subclass of Krum is refused as Krum."""

    class Robust(Krum):
        pass

    ShardedStrategy(averaging(FedProx, proximal_mu=0.1), aggregators=2)
    with pytest.raises(InvalidParameter, match=r"^Krum"):
        ShardedStrategy(Robust(), aggregators=2)


def test_a_strategy_of_another_kind_is_refused() -> None:
    """A strategy that is not FedAvg's kind is refused by its name."""

    class Mine(Strategy):
        def configure_train(self, *args: Any) -> Any: ...
        def aggregate_train(self, *args: Any) -> Any: ...
        def configure_evaluate(self, *args: Any) -> Any: ...
        def aggregate_evaluate(self, *args: Any) -> Any: ...
        def summary(self) -> None: ...

    with pytest.raises(InvalidParameter, match=r"Mine cannot be inside .* use FedAvg"):
        ShardedStrategy(Mine(), aggregators=2)


@pytest.mark.parametrize(
    ("arrays", "settings", "why"),
    [
        ({"w": np.zeros(9, bool)}, {}, "'w' is of bool"),
        ({"w": np.zeros(9, complex)}, {}, "'w' is of complex"),
        ({"w": np.zeros(0)}, {}, "no values"),
        ({"w": np.zeros(9)}, {"one_in": 4}, "one_in must be a whole number from 1 to 3"),
        ({"w": np.zeros(2)}, {}, "aggregators must be a whole number from 1 to 2"),
    ],
)
def test_models_that_cannot_be_averaged_are_refused(
    arrays: dict[str, Any], settings: dict[str, Any], why: str
) -> None:
    """The model decides over some settings: refused before any node gets a message."""
    grid = grid_of(range(1, 5))
    given = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    with pytest.raises(InvalidParameter, match=why):
        sharded(**settings).start(grid=grid, initial_arrays=given, num_rounds=1)
    assert not grid.sent


def test_more_aggregators_than_nodes_are_refused() -> None:
    """After waiting for nodes: refused before any node gets a message."""
    grid = grid_of(range(1, 4))
    with pytest.raises(InvalidParameter, match="needs as many nodes; 3 are connected"):
        run(grid, sharded(aggregators=4))
    assert not grid.sent


def test_more_aggregators_than_may_aggregate_are_refused() -> None:
    """Nodes say when they join whether they may hold a shard."""
    grid = grid_of(range(1, 5), may_aggregate=False)
    with pytest.raises(InvalidParameter, match="aggregators, and 0 of 4"):
        run(grid, sharded())


@pytest.mark.parametrize("secret", [b"too short", "sixteen characters"])
def test_secrets_are_of_sixteen_bytes(secret: Any) -> None:
    """A secret that can be guessed, or is text, is refused where it is written."""
    with pytest.raises(InvalidParameter, match="16 bytes or more"):
        ShardMod(secret)


@pytest.mark.parametrize(
    "floor",
    [
        {"min_members": 0},
        {"min_members": 1},
        {"min_members": "3"},
        {"conceal": None},
        {"conceal": 1},
    ],
)
def test_floors_of_a_client_are_checked_where_they_are_written(floor: Any) -> None:
    """What a client wants at least is a number from 2 on, and true or false."""
    with pytest.raises(InvalidParameter, match=next(iter(floor))):
        ShardMod(**floor)


def test_messages_of_two_models_are_refused() -> None:
    """A strategy that sends more than one record of arrays cannot be inside."""
    inner = averaging()
    configure = inner.configure_train

    def two(*args: Any, **kwargs: Any) -> Any:
        for message in configure(*args, **kwargs):
            message.content["more"] = ArrayRecord(dict(model()))
            yield message

    inner.configure_train = two  # type: ignore[method-assign]
    with pytest.raises(InvalidParameter, match="2 records of arrays"):
        run(grid_of(range(1, 5)), sharded(inner=inner))
