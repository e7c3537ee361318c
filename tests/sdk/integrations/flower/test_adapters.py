"""Adapters of different ranks in a federation of Flower: kin, means, and answers in each rank."""

from __future__ import annotations

import logging
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.testing import assert_allclose

from modelkin import Layout, Support
from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.federation.adapters import mean_of_rank, read_adapter, stacked_mean
from modelkin.federation.adapters.tensors import with_alphas
from modelkin.integrations.federation.adapter_means import AdapterMeans
from modelkin.integrations.federation.messages import SupportMessage
from modelkin.integrations.flower import (
    AdapterMod,
    AdapterStrategy,
    ClusteredStrategy,
    LearngeneStrategy,
    MixMod,
)
from modelkin.integrations.flower.mixing import COMMON
from tests.sdk.adapters.folders import factors, random_factors
from tests.sdk.integrations.flower.federation import LocalGrid

SHAPES = {"h.0.q": (12, 8), "h.0.down": (8, 20)}
RANKS = {1: 2, 2: 4, 3: 8}
A, B = (f"base_model.model.h.0.q.lora_{side}.weight" for side in "AB")
Tensors = dict[str, Any]
Change = Callable[[Tensors, int], Tensors]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.WARNING)


def config(rank: int, alpha: float = 16.0) -> dict[str, Any]:
    """α is one for all, so the scales differ as the ranks do."""
    return {"peft_type": "LORA", "r": rank, "lora_alpha": alpha}


def first() -> ArrayRecord:
    """The server's adapter before any training, of rank 8."""
    return record({n: v * ("lora_A" in n) for n, v in factors(drawn(0, 8)).items()})


def drawn(seed: int, rank: int) -> Any:
    return random_factors(seed, SHAPES, rank)


def record(tensors: Tensors) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(each)) for name, each in tensors.items()})


def tensors_of(message: Message) -> Tensors:
    (arrays,) = message.content.array_records.values()
    return {name: each.numpy() for name, each in arrays.items()}


def moved(tensors: Tensors, node: int) -> Tensors:
    """What a training makes of an adapter: a step that is the node's own."""
    steps = factors(drawn(node, len(tensors[A])))
    return {name: values + 0.1 * steps[name] for name, values in tensors.items()}


class Client:
    """A client that trains by a function, and keeps what its app saw and sent."""

    def __init__(self, rank: int, change: Change = moved) -> None:
        self.rank, self.change = rank, change
        self.seen: list[Tensors] = []
        self.sent: Tensors = {}

    def app(self, *mods: Any) -> ClientApp:
        found = ClientApp(mods=[*mods, AdapterMod(config(self.rank))])

        @found.train()
        def train(message: Message, context: Context) -> Message:
            return self._answer(message, context.node_id)

        @found.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            self.seen.append(tensors_of(message))
            metrics = MetricRecord({"num-examples": 10, "loss": 1.0})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

        return found

    def _answer(self, message: Message, node: int) -> Message:
        self.seen.append(tensors_of(message))
        self.sent = self.change(self.seen[-1], node)
        metrics = MetricRecord({"num-examples": 10 * node})
        answer: dict[str, Any] = {"arrays": record(self.sent), "metrics": metrics}
        return Message(RecordDict(answer), reply_to=message)


def run(clients: dict[int, Client], rounds: int = 1) -> tuple[AdapterStrategy, Any]:
    strategy = AdapterStrategy(config(8))
    grid = LocalGrid({node: client.app() for node, client in clients.items()})
    result = strategy.start(grid=grid, initial_arrays=first(), num_rounds=rounds)
    return strategy, result


def clients_of(**changes: Change) -> dict[int, Client]:
    """A client of each rank, some of which train otherwise."""
    return {n: Client(rank, changes.get(f"c{n}", moved)) for n, rank in RANKS.items()}


def read(clients: dict[int, Client]) -> dict[int, Any]:
    return {n: read_adapter(client.sent, config(client.rank)) for n, client in clients.items()}


def products(tensors: Tensors, fields: Any = None) -> Tensors:
    return {name: each.product() for name, each in read_adapter(tensors, fields).items()}


def arrays_of(result: Any) -> Tensors:
    return {name: each.numpy() for name, each in result.arrays.items()}


def assert_same(expected: Tensors, found: Tensors) -> None:
    assert expected.keys() == found.keys()
    for name, each in expected.items():
        assert_allclose(found[name], each, rtol=0, atol=2e-5)


def test_each_app_sees_its_own_rank() -> None:
    """Whatever the server's rank is; before any training the difference is zero for all."""
    clients = clients_of()
    run(clients)
    for client in clients.values():
        (seen, *_) = client.seen
        assert {name: each.shape for name, each in seen.items()} == {
            name: each.shape for name, each in factors(drawn(0, client.rank)).items()
        }
        assert all(not each.any() for each in products(seen, config(client.rank)).values())


def test_clients_begin_alike() -> None:
    """The rows of A are those of the higher ranks, so that what is learned can be compared."""
    clients = clients_of()
    run(clients)
    two, four, eight = (clients[node].seen[0][A] for node in (1, 2, 3))
    assert np.array_equal(two, eight[:2])
    assert np.array_equal(four, eight[:4])
    assert np.linalg.matrix_rank(eight) == 8


def test_the_server_has_the_exact_mean() -> None:
    """Of the differences, weighted by examples, whatever ranks and scales made them."""
    clients = clients_of()
    _, result = run(clients)
    exact = stacked_mean(read(clients), {1: 10, 2: 20, 3: 30})
    expected = {name: each.product() for name, each in exact.items()}
    assert_same(expected, products(arrays_of(result)))


def test_each_client_is_answered_in_its_own_rank() -> None:
    """By the best adapter of that rank, and the strategy says what it lacks."""
    clients = clients_of()
    strategy, _ = run(clients)
    adapters = read(clients)
    for node, client in clients.items():
        best = mean_of_rank(adapters, {1: 10, 2: 20, 3: 30}, rank=client.rank)
        expected = {name: each.product() for name, each in best.adapter.items()}
        assert_same(expected, products(client.seen[-1], config(client.rank)))
        assert_allclose(strategy.errors[node], best.error, atol=1e-6)


def test_a_client_alone_gets_back_what_it_sent() -> None:
    """Round after round: nothing is lost on the way."""
    clients = {2: Client(4)}
    strategy = AdapterStrategy(
        config(8), min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1
    )
    strategy.start(grid=LocalGrid({2: clients[2].app()}), initial_arrays=first(), num_rounds=3)
    assert_same(products(clients[2].sent, config(4)), products(clients[2].seen[-1], config(4)))


def test_a_client_that_comes_later_gets_the_mean() -> None:
    """In the rank of the server's first adapter, cut to its own by its mod."""
    clients = clients_of()
    strategy, result = run(clients)
    new = Client(2)
    grid = LocalGrid({node: client.app() for node, client in {**clients, 9: new}.items()})
    messages = strategy.configure_evaluate(2, result.arrays, ConfigRecord(), grid)
    (message,) = (each for each in messages if each.metadata.dst_node_id == 9)
    assert (8, 8) == tensors_of(message)[A].shape
    grid.send_and_receive([message])
    best = mean_of_rank(read(clients), {1: 10, 2: 20, 3: 30}, rank=2).adapter
    expected = {name: each.product() for name, each in best.items()}
    assert_same(expected, products(new.seen[-1], config(2)))


def nan(tensors: Tensors, node: int) -> Tensors:
    return {**tensors, A: np.full_like(tensors[A], np.nan)}


def half(tensors: Tensors, node: int) -> Tensors:
    return {name: each for name, each in tensors.items() if name != B}


def narrower(tensors: Tensors, node: int) -> Tensors:
    return {**tensors, A: tensors[A][:, :5]}


def fewer(tensors: Tensors, node: int) -> Tensors:
    return {A: tensors[A], B: tensors[B]}


def rankless(tensors: Tensors, node: int) -> Tensors:
    return {**tensors, A: tensors[A][:0], B: tensors[B][:, :0]}


def other_rank(tensors: Tensors, node: int) -> Tensors:
    return factors(drawn(node, 5))


def failing(tensors: Tensors, node: int) -> Tensors:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (nan, "has a value that is NaN"),
        (half, "has no lora_B"),
        (narrower, r"its 'h.0.q.weight' has the shape \[12, 5\], not \[12, 8\]"),
        (fewer, "does not target 'h.0.down.weight', and others do"),
        (rankless, "are empty"),
        (other_rank, "have the rank 5, its configuration says 4"),
        (failing, "out of memory"),
    ],
)
def test_a_client_that_does_not_fit_is_left_out(change: Change, why: str) -> None:
    """With a reason; the mean of the others is exact."""
    clients = clients_of(c2=change)
    strategy, result = run(clients)
    assert {2} == strategy.left_out.keys()
    assert re.search(why, strategy.left_out[2]), strategy.left_out
    others = read({n: client for n, client in clients.items() if n != 2})
    exact = stacked_mean(others, {1: 10, 3: 30})
    assert_same({n: e.product() for n, e in exact.items()}, products(arrays_of(result)))


@pytest.mark.parametrize("rank", [9, 1_000_000])
def test_a_rank_above_that_of_the_shape_is_refused(rank: int) -> None:
    """Before anything is copied; that of the shape itself is not refused."""
    means = AdapterMeans(config(8))
    means.begin({name: array.numpy() for name, array in first().items()})
    own = with_alphas(factors(drawn(1, 8)), config(8))
    zero = np.zeros((), np.float32)
    wide = {A: np.broadcast_to(zero, (rank, 8)), B: np.broadcast_to(zero, (12, rank))}
    tracemalloc.start()
    found = means.misfits({1: own, 2: {**own, **wide}})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {2} == set(found)
    assert f"'h.0.q.weight' has rank {rank}, and a difference of shape [12, 8] has 8" in found[2]
    assert peak < 4 * (12 + 8) * rank + 1e6


def test_first_arrays_need_a_scale() -> None:
    """Without a configuration, and without alphas beside them, nothing says it."""
    with pytest.raises(InvalidInput, match="give config"):
        AdapterStrategy().start(
            grid=LocalGrid({n: Client(2).app() for n in RANKS}),
            initial_arrays=first(),
            num_rounds=1,
        )


@pytest.mark.parametrize("make", [AdapterMod, AdapterStrategy])
def test_other_adapters_are_refused_at_once(make: Callable[[Any], Any]) -> None:
    """DoRA's differences are no product of two factors."""
    with pytest.raises(InvalidInput, match="use_dora"):
        make({**config(4), "use_dora": True})


def test_a_configuration_may_be_of_the_node() -> None:
    """One app for all nodes, whose ranks the nodes' own configurations say."""
    mod = AdapterMod(lambda context: config(int(context.node_config["rank"])))
    seen = []
    contexts = {n: Context(1, n, {"rank": rank}, RecordDict(), {}) for n, rank in RANKS.items()}
    app = ClientApp(mods=[mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        seen.append(tensors_of(message)[A].shape[0])
        metrics = MetricRecord({"num-examples": 1})
        return Message(
            RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message
        )

    strategy = AdapterStrategy(config(8), fraction_evaluate=0.0)
    grid = LocalGrid(dict.fromkeys(RANKS, app), contexts)
    strategy.start(grid=grid, initial_arrays=first(), num_rounds=1)
    assert [2, 4, 8] == sorted(seen)


def test_clusters_have_adapters_of_their_own() -> None:
    """Each cluster's model is the exact mean of its members; a member gets it in its own rank."""
    clients = {n: Client(rank) for n, rank in {1: 2, 2: 4, 3: 8, 4: 2}.items()}
    grid = LocalGrid({n: each.app(kin(n % 2)) for n, each in clients.items()})
    strategy = ClusteredStrategy(AdapterStrategy(config(8)), per_cluster=True)
    strategy.start(grid=grid, initial_arrays=first(), num_rounds=1)
    assert strategy.clusters is not None
    assert [(1, 3), (2, 4)] == sorted(strategy.clusters.members.values())
    adapters = read(clients)
    for cluster, members in strategy.clusters.members.items():
        own, weights = {n: adapters[n] for n in members}, {n: 10.0 * n for n in members}
        held = {name: each.numpy() for name, each in strategy.cluster_arrays[cluster].items()}
        exact = stacked_mean(own, weights)
        assert_same({name: each.product() for name, each in exact.items()}, products(held))
        for node in members:
            best = mean_of_rank(own, weights, rank=clients[node].rank).adapter
            expected = {name: each.product() for name, each in best.items()}
            assert_same(expected, products(clients[node].seen[-1], config(clients[node].rank)))


def test_no_layers_of_adapters_are_shared() -> None:
    """A learngene is layers of a model, whose other layers stay: refused before any training."""
    with pytest.raises(InvalidParameter, match="AdapterStrategy cannot be inside Learngene"):
        LearngeneStrategy(AdapterStrategy(config(8)), depth=1)


def test_two_adapters_are_never_mixed() -> None:
    """Half of two products is not the product of half their factors: the server refuses at once."""
    with pytest.raises(InvalidParameter, match="both cannot be combined with an AdapterStrategy"):
        ClusteredStrategy(AdapterStrategy(config(8)), per_cluster=True, both=True)


def test_a_client_mixes_no_adapters() -> None:
    """Nor does a mod, where a server sends two: its client fails by name, and others count."""

    def send_two(message: Message, context: Context, call_next: Any) -> Message:
        message.content[COMMON] = message.content["arrays"]
        answer: Message = call_next(message, context)
        return answer

    clients, strategy = clients_of(), AdapterStrategy(config(8), fraction_evaluate=0.0)
    mods = {1: [send_two, MixMod(0.5)], 2: [], 3: []}
    grid = LocalGrid({node: client.app(*mods[node]) for node, client in clients.items()})
    strategy.start(grid=grid, initial_arrays=first(), num_rounds=1)
    assert {1} == strategy.left_out.keys()
    assert "MixMod cannot mix adapters" in strategy.left_out[1]
    assert not clients[1].seen


@pytest.mark.parametrize("named", [False, True])
def test_a_support_may_be_of_the_whole_base(named: bool) -> None:
    """Where the strategy is told its layout; else no support is longer than what is adapted."""
    clients = clients_of()
    grid = LocalGrid({n: each.app(kin(0, 5000)) for n, each in clients.items()})
    layout = Layout.of([("whole", (5000,))]) if named else None
    strategy = ClusteredStrategy(AdapterStrategy(config(8)), layout=layout)
    strategy.start(grid=grid, initial_arrays=first(), num_rounds=1)
    found = () if strategy.clusters is None else strategy.clusters.nodes
    assert found == ((1, 2, 3) if named else ())


def kin(group: int, parameters: int = 12 * 8 + 8 * 20) -> Any:
    """A mod that sends the support of a group, of as many parameters as the adapters target."""
    support = Support.from_indices(np.arange(12) + 100 * group, parameters)

    def mod(message: Message, context: Context, call_next: Any) -> Message:
        answer: Message = call_next(message, context)
        if message.metadata.message_type == "train":
            answer.content["modelkin"] = ConfigRecord({**SupportMessage(support, 12).to_values()})
        return answer

    return mod
