"""A reply that cannot be averaged ends no round of a strategy, and moves no other's model."""

from __future__ import annotations

import io
import logging
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.server.superlink.linkstate.utils import create_message_error_unavailable_res_message
from flwr.serverapp.strategy import FedAvg, FedMedian, Result, Strategy

from modelkin.errors import InvalidParameter
from modelkin.integrations.flower import ClusteredStrategy, MixMod, SupportMod
from tests.sdk.integrations.flower.federation import LocalGrid, app, mlp, received, reply

GOOD = (1, 2, 3, 4)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.WARNING)


def answering(make: Callable[[Message], Message], *mods: Any) -> ClientApp:
    """A client whose answer is what a function makes of the message."""
    found = ClientApp(mods=[*mods])

    @found.train()
    def train(message: Message, context: Context) -> Message:
        return make(message)

    return found


def run(
    apps: dict[int, ClientApp], inner: Strategy, grid: type[LocalGrid] = LocalGrid, **how: Any
) -> tuple[ClusteredStrategy, Result]:
    strategy = ClusteredStrategy(inner, **how)
    initial = ArrayRecord(mlp().state_dict())
    return strategy, strategy.start(grid=grid(apps), initial_arrays=initial, num_rounds=2)


def clients(*mods: Any) -> dict[int, ClientApp]:
    return {node: app(SupportMod(), *mods) for node in GOOD}


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(array.numpy(), other[name].numpy()) for name, array in one.items())


def _changed(message: Message, **arrays: np.ndarray) -> Message:
    own = {name: array.numpy() for name, array in ArrayRecord(mlp().state_dict()).items()}
    record = ArrayRecord({n: Array(values) for n, values in {**own, **arrays}.items()})
    metrics = MetricRecord({"num-examples": 3})
    return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)


BAD: list[tuple[Callable[[Message], Message], str]] = [
    (lambda m: _changed(m, extra=np.ones(2)), "the model does not have 'extra'"),
    (lambda m: _changed(m, **{"0.bias": np.ones(3)}), "'0.bias' has the shape [3]"),
    (lambda m: _changed(m, **{"2.bias": np.full(4, np.nan)}), "'2.bias' has"),
    (lambda m: reply(m, received(m), {"num-examples": -5}), "-5"),
    (lambda m: reply(m, received(m), {"num-examples": 2**60}), "more than 2^53"),
    (lambda m: reply(m, received(m), {"examples": 3}), "its metrics differ"),
    (lambda m: reply(m, None, {"num-examples": 3}), "has 0 records of arrays"),
]


@pytest.mark.parametrize(("make", "why"), BAD)
@pytest.mark.parametrize("inner", [FedAvg, FedMedian])
def test_a_bad_reply_is_left_out_without_models_of_clusters(
    make: Any, why: str, inner: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named with its reason, and the strategy's mean is that of a round without it."""
    found, result = run({**clients(), 9: answering(make)}, inner(fraction_evaluate=0.0))
    _, alone = run(clients(), inner(fraction_evaluate=0.0))
    assert same(alone.arrays, result.arrays)
    assert found.clusters is not None
    assert {9} == set(found.clusters.weighted_down)
    assert why in found.clusters.weighted_down[9]
    assert f"client 9 is left out: {found.clusters.weighted_down[9]}" in caplog.text


def test_a_client_whose_app_fails_has_its_reason() -> None:
    """Without a support it is in no cluster; a known one stays in its own, and out of the mean."""
    calls = iter(range(10))

    def fails(message: Message, context: Context, call_next: Any) -> Message:
        if context.node_id == 9 or next(calls):
            raise OSError("my disk is full")
        answer: Message = call_next(message, context)
        return answer

    failing = {node: app(SupportMod(), fails) for node in (4, 9)}
    inner = FedAvg(fraction_evaluate=0.0)
    found, _ = run({**clients(), **failing}, inner, per_cluster=True)
    assert found.clusters is not None
    assert {9: "its app failed: my disk is full"} == found.clusters.left_out
    assert {4: "its app failed: my disk is full"} == found.clusters.weighted_down


@pytest.mark.parametrize(("make", "why"), BAD)
def test_a_bad_reply_is_left_out_beside_both_models(make: Any, why: str) -> None:
    """Of clients that mix both models, those of the others are to the bit as without it."""
    how: dict[str, Any] = {"per_cluster": True, "both": True}
    apps = {**clients(MixMod(0.5)), 9: answering(make)}
    found, result = run(apps, FedAvg(fraction_evaluate=0.0), **how)
    other, alone = run(clients(MixMod(0.5)), FedAvg(fraction_evaluate=0.0), **how)
    assert same(alone.arrays, result.arrays)
    assert found.clusters is not None
    assert why in found.clusters.weighted_down[9]
    models = [s.cluster_arrays[c] for s in (other, found) if (c := s.cluster_of(1)) is not None]
    assert same(*models)


class DeadNodes(LocalGrid):
    """A grid whose SuperLink answers for some nodes: their errors have its id, and not theirs."""

    dead = (7, 8)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = {message.metadata.dst_node_id: message for message in messages}
        lost = [sent.pop(node) for node in self.dead if node in sent]
        errors = [
            create_message_error_unavailable_res_message(each.metadata, "node_unavail")
            for each in lost
        ]
        return [*errors, *super().send_and_receive(sent.values(), timeout=timeout)]


class Counting(FedAvg):
    """Notes how many of the replies that it gets are errors."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.errors: list[int] = []

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        replies = list(replies)
        self.errors.append(sum(reply.has_error() for reply in replies))
        return super().aggregate_train(server_round, replies)


def test_two_dead_nodes_are_two_failures(caplog: pytest.LogCaptureFixture) -> None:
    """They are no client that answers twice, and the others count as without them."""
    inner = Counting()
    apps = {**clients(), **{node: app(SupportMod()) for node in DeadNodes.dead}}
    _, result = run(apps, inner, grid=DeadNodes)
    _, alone = run(clients(), FedAvg(fraction_evaluate=0.0))
    assert [2, 2] == inner.errors
    assert "only the first answer" not in caplog.text
    assert same(alone.arrays, result.arrays)


def test_models_are_read_one_at_a_time() -> None:
    """Of 32 models, each a copy of 1 MiB where it is read, few are in memory at once."""
    stream, values = io.BytesIO(), np.ones(1 << 18, np.float32)
    np.lib.format.write_array(stream, values, version=(2, 0))  # others are read without a copy
    arrays = ArrayRecord({"w": Array("float32", values.shape, "numpy.ndarray", stream.getvalue())})
    strategy = ClusteredStrategy(FedAvg(fraction_evaluate=0.0), by="data", patience=1)
    grid = LocalGrid({node: answering(lambda message: message) for node in range(1, 33)})
    sent = strategy.configure_train(1, arrays, ConfigRecord(), grid)
    records: dict[str, Any] = {"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}
    replies = [Message(RecordDict(records), reply_to=message) for message in sent]
    tracemalloc.start()
    try:
        mean, _ = strategy.aggregate_train(1, replies)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert 32 == len(replies)
    assert mean is not None
    assert mean["w"].numpy() == pytest.approx(values)


def test_options_of_the_other_way_are_refused() -> None:
    """Patience is for questions that clusters by supports do not ask."""
    with pytest.raises(InvalidParameter, match="patience is for by='data'"):
        ClusteredStrategy(FedAvg(), patience=5.0)
    ClusteredStrategy(FedAvg(), by="data", patience=5.0)
