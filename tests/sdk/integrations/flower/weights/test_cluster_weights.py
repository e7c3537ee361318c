"""The weights of clients in the means of their clusters, and clients that are left out of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg, Result
from torch.nn.functional import cross_entropy

import modelkin
from modelkin.errors import InvalidParameter
from modelkin.federation.additions import cover, holders, rarity
from modelkin.integrations.flower import (
    ClusteredStrategy,
    LearngeneStrategy,
    ShardedStrategy,
    SupportMod,
)
from modelkin.torch import fisher_importance
from tests.sdk.integrations.flower.federation import LocalGrid, app, examples, mlp

ODD, EVEN = (1, 3, 5), (2, 4, 6)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.WARNING)


class Remembering(ClusteredStrategy):
    """The strategy, with the result of its rounds."""

    result: Result


def run(
    *nodes: int,
    spoil: Callable[[Any, Any], None] | None = None,
    liars: tuple[int, ...] = (1,),
    without: int | None = None,
    per_cluster: bool = True,
    **how: Any,
) -> Remembering:
    """One round; liars spoil their arrays or metrics, and one sends no support."""

    def spoils(message: Message, context: Context, call: Any) -> Message:
        reply: Message = call(message, context)
        if spoil is not None and context.node_id in liars and "arrays" in reply.content:
            spoil(reply.content["arrays"], reply.content["metrics"])
        return reply

    options = how.pop("mod", {})
    mods = {node: None if node == without else SupportMod(**options) for node in nodes}
    grid = LocalGrid({node: app(mod, spoils) for node, mod in mods.items()})
    strategy = Remembering(FedAvg(), per_cluster=per_cluster, **how)
    initial = ArrayRecord(mlp().state_dict())
    strategy.result = strategy.start(grid=grid, initial_arrays=initial, num_rounds=1)
    return strategy


def _set_nan(arrays: ArrayRecord, _: MetricRecord) -> None:
    arrays["0.bias"] = Array(np.full(24, np.nan, np.float32))


def _drop(arrays: ArrayRecord, _: MetricRecord) -> None:
    del arrays["0.bias"]


def _overflow(arrays: ArrayRecord, _: MetricRecord) -> None:
    arrays["0.bias"] = Array(np.full(24, 1e300))


def _widen(arrays: ArrayRecord, _: MetricRecord) -> None:
    for name, each in list(arrays.items()):
        arrays[name] = Array(each.numpy().astype(np.float64))


def _lie(_: ArrayRecord, metrics: MetricRecord) -> None:
    metrics["num-examples"] = 1e300


def _add_metric(_: ArrayRecord, metrics: MetricRecord) -> None:
    metrics["odd"] = 1.0


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_set_nan, "NaN"),
        (_drop, "the model has '0.bias'"),
        (_overflow, "NaN or infinite in float32"),
        (_lie, "more than 2^53"),
        (_add_metric, "metrics differ"),
    ],
)
def test_a_client_that_does_not_fit_is_left_out(
    spoil: Callable[[Any, Any], None], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It has a reason, and the mean of its cluster is exactly that of the others."""
    strategy, others = run(*ODD, *EVEN, spoil=spoil), run(3, 5, *EVEN)
    found = strategy.clusters
    assert found is not None
    assert {1} == found.weighted_down.keys()
    assert why in found.weighted_down[1]
    assert why in caplog.text
    assert "client 1 is left out: " in caplog.text
    for node in (3, 2):
        own, expected = (s.cluster_arrays[s.cluster_of(node) or 0] for s in (strategy, others))
        assert all(np.array_equal(own[name].numpy(), expected[name].numpy()) for name in expected)
    assert found.weights == pytest.approx({1: 0, 3: 0.5, 5: 0.5, **dict.fromkeys(EVEN, 1 / 3)})


def test_most_clients_do_not_decide_the_layout() -> None:
    """Where most drop an array, they are left out, and the others' means are exact."""
    liars = (1, 3, 2, 4)
    strategy, others = run(*ODD, *EVEN, spoil=_drop, liars=liars), run(5, 6)
    found = strategy.clusters
    assert found is not None
    assert set(liars) == found.weighted_down.keys()
    assert_equal(others.result.arrays, strategy.result.arrays)
    alone = _models(5, 6)
    for node in (5, 6):
        own = strategy.cluster_arrays[strategy.cluster_of(node) or 0]
        assert np.array_equal(alone[node], values(own))


def test_a_wider_type_changes_no_bit() -> None:
    """One that sends float64 counts, and its kin's model and that of all keep the types sent."""
    strategy, expected = run(*ODD, *EVEN, spoil=_widen), run(*ODD, *EVEN)
    assert strategy.clusters is not None
    assert not strategy.clusters.weighted_down
    assert strategy.cluster_arrays.keys() == expected.cluster_arrays.keys()
    for cluster, arrays in expected.cluster_arrays.items():
        assert_equal(arrays, strategy.cluster_arrays[cluster])
    for name, array in expected.result.arrays.items():
        assert array.dtype == strategy.result.arrays[name].dtype
        np.testing.assert_allclose(
            strategy.result.arrays[name].numpy(), array.numpy(), rtol=1e-5, atol=1e-7
        )


def assert_equal(expected: ArrayRecord, found: ArrayRecord) -> None:
    """The names, the types and all bits."""
    assert {name: each.dtype for name, each in expected.items()} == {
        name: each.dtype for name, each in found.items()
    }
    assert all(np.array_equal(each.numpy(), found[n].numpy()) for n, each in expected.items())


def support_of(node: int) -> modelkin.Support:
    """The support of a client at the first weights."""
    return modelkin.select_support(fisher_importance(mlp(), cross_entropy, [examples(node)]))


def values(arrays: ArrayRecord) -> np.ndarray[Any, Any]:
    return np.concatenate([arrays[name].numpy().ravel() for name in sorted(arrays)])


@pytest.mark.parametrize(("weights", "measure"), [("cover", cover), ("rarity", rarity)])
def test_clients_weigh_by_what_they_add(weights: str, measure: Any) -> None:
    """In its cluster by its members' supports, and in the strategy's mean by those of all."""
    strategy = run(*ODD, *EVEN, weights=weights)
    found, models = strategy.clusters, _models(*ODD, *EVEN)
    assert found is not None
    assert not found.weighted_down
    for nodes in (ODD, EVEN):
        own = np.array(measure(holders([support_of(node) for node in nodes])))
        shares = [found.weights[node] for node in nodes]
        np.testing.assert_allclose(shares, own / own.sum())
        mean = np.average([models[node] for node in nodes], axis=0, weights=own)
        arrays = strategy.cluster_arrays[strategy.cluster_of(nodes[0]) or 0]
        np.testing.assert_allclose(values(arrays), mean, atol=1e-6)
    every = measure(holders([support_of(node) for node in (*ODD, *EVEN)]))
    mean = np.average([models[node] for node in (*ODD, *EVEN)], axis=0, weights=every)
    np.testing.assert_allclose(values(strategy.result.arrays), mean, atol=1e-6)


def _models(*nodes: int) -> dict[int, np.ndarray[Any, Any]]:
    """What each client sends back in the first round, as the server reads it."""
    sent: dict[int, np.ndarray[Any, Any]] = {}

    class Watching(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            for reply in replies:
                arrays = reply.content["arrays"]
                sent[reply.metadata.src_node_id] = values(arrays).astype(np.float64)
            return super().aggregate_train(server_round, replies)

    initial = ArrayRecord(mlp().state_dict())
    grid = LocalGrid({node: app(None) for node in nodes})
    Watching().start(grid=grid, initial_arrays=initial, num_rounds=1)
    return sent


@pytest.mark.parametrize("weights", ["equal", "cover", "rarity"])
@pytest.mark.parametrize("per_cluster", [True, False])
def test_a_lie_about_samples_changes_nothing(weights: str, per_cluster: bool) -> None:
    """Neither a huge number nor an impossible one; by examples it would decide the mean."""
    how: dict[str, Any] = {"weights": weights, "per_cluster": per_cluster}
    honest = run(*ODD, *EVEN, **how)
    for spoil in (_exaggerate, _lie):
        lied = run(*ODD, *EVEN, spoil=spoil, **how)
        assert np.array_equal(values(honest.result.arrays), values(lied.result.arrays))
        assert honest.cluster_arrays.keys() == lied.cluster_arrays.keys()
        for cluster, arrays in honest.cluster_arrays.items():
            assert np.array_equal(values(arrays), values(lied.cluster_arrays[cluster]))
    believed = run(*ODD, *EVEN, spoil=_exaggerate, weights="examples", per_cluster=per_cluster)
    assert not np.allclose(values(honest.result.arrays), values(believed.result.arrays))


def _exaggerate(_: ArrayRecord, metrics: MetricRecord) -> None:
    metrics["num-examples"] = 10**6


def test_equal_weights_need_no_number_of_examples() -> None:
    """In one model for all each client has the same share."""
    strategy = run(*ODD, *EVEN, weights="equal", per_cluster=False)
    assert strategy.clusters is not None
    assert strategy.clusters.weights == pytest.approx(dict.fromkeys((*ODD, *EVEN), 1 / 6))


def test_a_client_without_a_support_has_the_least_weight(caplog: pytest.LogCaptureFixture) -> None:
    """To send none is no gain; the reason is with the clusters and in the log."""
    strategy = run(*ODD, *EVEN, without=5, weights="cover", per_cluster=False)
    assert strategy.clusters is not None
    weights = dict(strategy.clusters.weights)
    assert weights.pop(5) == min(weights.values())
    assert {5} == strategy.clusters.weighted_down.keys()
    assert "client 5 is weighted down: it sent no support" in caplog.text


def test_signatures_alone_estimate_the_weights() -> None:
    """Clients that send 1 kB in place of a support weigh nearly as with it."""
    how: dict[str, Any] = {"weights": "cover", "per_cluster": False}
    exact = run(*ODD, *EVEN, **how)
    signed = run(*ODD, *EVEN, mod={"send": "signature", "num_perm": 4096}, **how)
    assert exact.clusters is not None
    assert signed.clusters is not None
    assert signed.clusters.weights == pytest.approx(exact.clusters.weights, rel=0.1)


def test_weights_that_cannot_be_are_refused() -> None:
    """Members of shards weigh themselves, data subspaces are no supports, and names are known."""
    sharded = ShardedStrategy(FedAvg(), aggregators=2)
    for inner in (sharded, LearngeneStrategy(sharded, depth=1)):
        with pytest.raises(InvalidParameter, match="members weigh their own updates"):
            ClusteredStrategy(inner, weights="cover")
    with pytest.raises(InvalidParameter, match="by='data' asks for none"):
        ClusteredStrategy(FedAvg(), by="data", weights="rarity")
    wrong: Any = "samples"
    with pytest.raises(InvalidParameter, match="'examples', 'equal', 'cover', 'rarity'"):
        ClusteredStrategy(FedAvg(), weights=wrong)
    with pytest.raises(InvalidParameter, match="the ClusteredStrategy around"):
        LearngeneStrategy(FedAvg(), depth=1, weights=cast(Any, "cover"))


def test_a_counter_is_averaged_too() -> None:
    """A whole number without dimensions, as batch normalisation has one, stays an array."""

    def counts(message: Message, context: Context, call: Any) -> Message:
        steps = message.content.array_records["arrays"].pop("steps").numpy()
        reply: Message = call(message, context)
        reply.content.array_records["arrays"]["steps"] = Array(
            np.asarray(steps + 2 * context.node_id)
        )
        return reply

    grid = LocalGrid({node: app(SupportMod(), counts) for node in (*ODD, *EVEN)})
    initial = ArrayRecord(mlp().state_dict())
    initial["steps"] = Array(np.array(10))
    strategy = ClusteredStrategy(FedAvg(fraction_evaluate=0.0), per_cluster=True, weights="equal")
    result = strategy.start(grid=grid, initial_arrays=initial, num_rounds=1)
    found = [arrays["steps"].numpy() for arrays in strategy.cluster_arrays.values()]
    assert {((), "int64")} == {(each.shape, each.dtype.name) for each in found}
    assert [16, 18] == sorted(map(int, found))
    assert 17 == result.arrays["steps"].numpy()
