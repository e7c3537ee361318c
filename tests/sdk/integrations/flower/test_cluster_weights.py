"""The weights of clients in the means of their clusters, and clients that are left out of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg

from modelkin.integrations.flower import ClusteredStrategy, SupportMod
from tests.sdk.integrations.flower.federation import LocalGrid, app, mlp

ODD, EVEN = (1, 3, 5), (2, 4, 6)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.WARNING)


def run(*nodes: int, spoil: Callable[[Any, Any], None] | None = None) -> ClusteredStrategy:
    """One round with a model for each cluster; client 1 spoils its arrays or metrics."""

    def spoils(message: Message, context: Context, call: Any) -> Message:
        reply: Message = call(message, context)
        if spoil is not None and context.node_id == 1 and "arrays" in reply.content:
            spoil(reply.content["arrays"], reply.content["metrics"])
        return reply

    grid = LocalGrid({node: app(SupportMod(), spoils) for node in nodes})
    strategy = ClusteredStrategy(FedAvg(), per_cluster=True)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(mlp().state_dict()), num_rounds=1)
    return strategy


def _set_nan(arrays: ArrayRecord, _: MetricRecord) -> None:
    arrays["0.bias"] = Array(np.full(24, np.nan, np.float32))


def _drop(arrays: ArrayRecord, _: MetricRecord) -> None:
    del arrays["0.bias"]


def _lie(_: ArrayRecord, metrics: MetricRecord) -> None:
    metrics["num-examples"] = 1e300


def _add_metric(_: ArrayRecord, metrics: MetricRecord) -> None:
    metrics["odd"] = 1.0


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_set_nan, "NaN"),
        (_drop, "most have '0.bias'"),
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
    for node in (3, 2):
        own, expected = (s.cluster_arrays[s.cluster_of(node) or 0] for s in (strategy, others))
        assert all(np.array_equal(own[name].numpy(), expected[name].numpy()) for name in expected)
    assert found.weights == pytest.approx({1: 0, 3: 0.5, 5: 0.5, **dict.fromkeys(EVEN, 1 / 3)})
