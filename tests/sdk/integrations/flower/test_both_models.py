"""Clients get their cluster's model and the common one in a round, and make one model of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message

from modelkin.errors import InvalidParameter
from modelkin.integrations.flower import (
    ClusteredStrategy,
    LearngeneStrategy,
    MixMod,
    RoundReport,
    ShardMod,
    SupportMod,
)
from tests.sdk.integrations.flower import federation
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
    group,
    learngene_mod,
    own,
    run,
    step,
    values,
)
from tests.sdk.integrations.flower.shards.sharded_federation import sharded

COMMON, MIX = "modelkin-common", "modelkin-mix"
Model = dict[str, Any]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR, "flwr")


def strategy_of(inner: Any = None, **settings: Any) -> ClusteredStrategy:
    """Two clusters by data, each with a model of its own."""
    asked = {"both": True, "patience": 0.2, **settings}
    return ClusteredStrategy(inner or averaging(), by="data", per_cluster=True, **asked)


def grid_of(mods: dict[int, list[Any]]) -> NotingGrid:
    """Clients that answer with their data, and have more mods."""
    return NotingGrid({node: app([data_mod(), *more]) for node, more in mods.items()})


def evaluating() -> Any:
    """FedAvg that also evaluates."""
    inner = averaging()
    inner.fraction_evaluate = 1.0
    return inner


def trainings(grid: NotingGrid, node: int) -> list[Message]:
    """The training messages that carried arrays to a node."""
    return [
        message
        for message in grid.sent
        if message.metadata.message_type == "train"
        and message.metadata.dst_node_id == node
        and message.content.array_records
    ]


def mean(models: dict[int, Model], nodes: Iterable[int]) -> Model:
    """The mean of nodes' models by their examples, in float64."""
    nodes = list(nodes)
    total = sum(map(examples, nodes))
    return {n: sum(models[k][n] * (examples(k) / total) for k in nodes) for n in values()}


def expected(shares: dict[int, float], rounds: int) -> tuple[Model, dict[int, Model]]:
    """The common model and each group's, by brute force; group 0 is of even nodes."""
    common: Model = values()
    groups: dict[int, Model] = {0: common, 1: common}
    for _ in range(rounds):
        trained = {}
        for node, share in shares.items():
            start = {n: share * v + (1 - share) * common[n] for n, v in groups[group(node)].items()}
            trained[node] = {n: v + step(node)[n] for n, v in start.items()}
        groups = {g: mean(trained, [k for k in shares if group(k) == g]) for g in groups}
        common = mean(trained, shares)
    return common, groups


def assert_models(
    strategy: ClusteredStrategy, arrays: ArrayRecord, shares: dict[int, float], rounds: int
) -> None:
    """The strategy's model and its clusters' are those of the brute force."""
    common, groups = expected(shares, rounds)
    for name, exact in common.items():
        np.testing.assert_allclose(arrays[name].numpy(), exact, atol=1e-5)
    for node in (1, 2):
        cluster = strategy.cluster_of(node)
        assert cluster is not None
        for name, exact in groups[group(node)].items():
            found = strategy.cluster_arrays[cluster][name].numpy()
            np.testing.assert_allclose(found, exact, atol=1e-5)


def assert_others(arrays: ArrayRecord, left_out: int) -> None:
    """The model after two rounds is the mean of all but one node, which counts in the first."""
    _, before = expected(dict.fromkeys(NODES, 1.0), 1)
    trained = {k: {n: v + step(k)[n] for n, v in before[group(k)].items()} for k in NODES}
    for name, exact in mean(trained, [k for k in NODES if k != left_out]).items():
        np.testing.assert_allclose(arrays[name].numpy(), exact, atol=1e-5)


@pytest.mark.parametrize("conceal", [None, False, True])
def test_means_are_those_of_models_trained_from_mixes(conceal: bool | None) -> None:
    """Plain apps, mixes and both single models in one federation, in the clear and in shards."""
    ways: list[float | None] = [None, 0.25, 0.5, 0.0, 1.0, 0.75, None, 0.0]
    wanted = dict(zip(NODES, ways, strict=True))
    outer = [] if conceal is None else [ShardMod(conceal=conceal)]
    mods = {n: [*outer, *([] if s is None else [MixMod(s)])] for n, s in wanted.items()}
    strategy = strategy_of(None if conceal is None else sharded(conceal=conceal))
    grid = grid_of(mods)
    result = run(grid, strategy, 3)
    shares = {node: 1.0 if share is None else share for node, share in wanted.items()}
    assert_models(strategy, result.arrays, shares, 3)
    mixed = {node: share for node, share in wanted.items() if share in (0.25, 0.5, 0.75)}
    assert mixed == strategy.shares
    assert 0.5 == result.train_metrics_clientapp[3]["modelkin-share"]
    assert "modelkin-share" not in result.train_metrics_clientapp[1]


def test_a_second_model_goes_to_those_who_ask_alone() -> None:
    """From the second round on, and ``costs`` counts it; one model alone costs one."""
    grid = grid_of({n: [MixMod({1: 0.5, 2: 0.0, 3: 1.0}[n])] if n < 4 else [] for n in NODES})
    strategy = strategy_of()
    run(grid, strategy, 2)
    for node in NODES:
        first, second = (set(m.content.array_records) for m in trainings(grid, node))
        assert {"arrays"} == first
        assert ({"arrays", COMMON} if node == 1 else {"arrays"}) == second
    down = strategy.costs[2].down
    one_model = sum(each.nbytes for each in values().values())
    assert one_model <= down[1] - down[4] <= one_model + 1_000
    assert all(abs(down[node] - down[4]) < 100 for node in (2, 3))
    assert all(abs(up - strategy.costs[2].up[4]) < 100 for up in strategy.costs[2].up.values())


def test_nobody_gets_a_second_model_where_the_strategy_sends_none() -> None:
    """Without ``both`` clients that ask train their cluster's model."""
    grid = grid_of({node: [MixMod(0.5)] for node in NODES})
    strategy = strategy_of(both=False)
    result = run(grid, strategy, 2)
    assert all(COMMON not in message.content for message in grid.sent)
    assert_models(strategy, result.arrays, dict.fromkeys(NODES, 1.0), 2)
    assert {} == strategy.shares


def test_the_better_model_is_chosen_by_each_client() -> None:
    """By the loss that the app gives, for training and for evaluation."""
    seen: list[tuple[int, float]] = []

    def loss(arrays: ArrayRecord, context: Context) -> float:
        seen.append((context.node_id, float(arrays["head.weight"].numpy()[0, 0])))
        return seen[-1][1] * (1 if context.node_id < 5 else -1)

    grid = grid_of({node: [MixMod((1, 0), loss=loss)] for node in NODES})
    strategy = strategy_of(evaluating())
    result = run(grid, strategy, 2)
    # The second round trains what the first left, and evaluates its own.
    own_value, common_value = {}, float(result.arrays["head.weight"].numpy()[0, 0])
    for node in NODES:
        cluster = strategy.cluster_of(node)
        assert cluster is not None
        own_value[node] = float(strategy.cluster_arrays[cluster]["head.weight"].numpy()[0, 0])
    better = {node: float((own_value[node] <= common_value) == (node < 5)) for node in NODES}
    assert better == strategy.shares
    assert {0.0, 1.0} == set(better.values())
    # Two losses a message: the first evaluation, and both messages of the second round.
    assert 2 * 3 * len(NODES) == len(seen)
    share = result.evaluate_metrics_clientapp[2]["modelkin-share"]
    assert np.mean(list(better.values())) == pytest.approx(share)


def test_trunks_are_mixed_and_heads_stay() -> None:
    """With layers of their own clients get two trunks, and go on with their private layers."""
    grid = grid_of({node: [MixMod(0.5), learngene_mod(node)] for node in NODES})
    strategy = strategy_of(LearngeneStrategy(averaging(), depth=1, tighten=0))
    result = run(grid, strategy, 3)
    common, _ = expected(dict.fromkeys(NODES, 0.5), 3)
    for name in SHARED:
        np.testing.assert_allclose(result.arrays[name].numpy(), common[name], atol=1e-5)
    assert set(SHARED) == grid.returned
    for node in NODES:
        kept = grid.state(node)["modelkin-learngene"]
        assert isinstance(kept, ArrayRecord)
        for name in PRIVATE:
            exact = own(node)[name] + 3 * step(node)[name]
            np.testing.assert_allclose(kept[name].numpy(), exact, atol=1e-5)
    for message in trainings(grid, 1)[1:]:
        assert all(set(SHARED) == set(each) for each in message.content.array_records.values())


def test_a_mix_around_shards_is_refused() -> None:
    """At the first message: its update would be relative to another model; the others count."""
    mods: dict[int, list[Any]] = {node: [ShardMod(conceal=False)] for node in NODES}
    mods[1] = [MixMod(0.5), ShardMod(conceal=False)]
    reports: list[RoundReport] = []
    inner = sharded(reports, conceal=False)
    strategy = strategy_of(inner)
    result = run(grid_of(mods), strategy, 2)
    assert {1: "MixMod must come after ShardMod among the mods of the app"} == inner.refused
    # Both clusters averaged alone, and each round's last report has the node that did not.
    assert [[], [1], [], [1]] == [list(report.refused) for report in reports]
    others = set().union(*(report.members for report in reports))
    assert set(NODES) - {1} == others
    assert result.arrays is not None


def test_a_client_without_a_finite_loss_is_left_out() -> None:
    """Its app fails in the second round, and the others are averaged."""
    broken = MixMod((0, 1), loss=lambda arrays, context: float("nan"))
    grid = grid_of({node: [broken] if node == 2 else [] for node in NODES})
    strategy = strategy_of()
    result = run(grid, strategy, 2)
    assert_others(result.arrays, 2)
    assert {} == strategy.shares


@pytest.mark.parametrize(
    "said", [{"wants": "all"}, {"wants": 3}, {"wants": "both", "share": 7.0}, {"share": 0.5}]
)
def test_what_a_client_cannot_ask_for_is_logged(
    said: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It gets its cluster's model, and counts as before."""
    caplog.set_level(logging.WARNING, "modelkin.integrations")

    def ask(message: Message, context: Context, call_next: Any) -> Message:
        reply: Message = call_next(message, context)
        reply.content[MIX] = ConfigRecord(said)
        return reply

    grid = grid_of({node: [ask] if node == 2 else [] for node in NODES})
    strategy = strategy_of()
    result = run(grid, strategy, 2)
    assert "client 2 gets its cluster's model: it asked for none" in caplog.text
    assert all(COMMON not in message.content for message in grid.sent)
    assert_models(strategy, result.arrays, dict.fromkeys(NODES, 1.0), 2)


def test_the_weights_of_a_new_client_are_never_mixed() -> None:
    """Supports are compared at the first weights: one that must train there gets them alone."""
    calls = iter(range(10))

    def lose_first(message: Message, context: Context, call_next: Any) -> Message:
        reply: Message = call_next(message, context)
        if message.metadata.message_type == "train" and not next(calls):
            del reply.content["modelkin"]
        return reply

    apps = {node: federation.app(SupportMod(), MixMod(0.5)) for node in range(1, 6)}
    apps[6] = federation.app(SupportMod(), lose_first, MixMod(0.5))
    grid, first = NotingGrid(apps), ArrayRecord(federation.mlp().state_dict())
    strategy = ClusteredStrategy(averaging(), per_cluster=True, both=True)
    strategy.start(grid=grid, initial_arrays=first, num_rounds=4)
    late, last = trainings(grid, 6)[2:]
    assert {"arrays"} == set(late.content.array_records)
    for name, each in arrays_of(late).items():
        np.testing.assert_array_equal(each, first[name].numpy())
    assert {"arrays", COMMON} == set(last.content.array_records)


def test_bad_arguments_are_refused_at_once() -> None:
    """Before any message."""
    with pytest.raises(InvalidParameter, match="both is for per_cluster"):
        ClusteredStrategy(averaging(), both=True)
    with pytest.raises(InvalidParameter, match="give loss with several shares"):
        MixMod((0, 1))
    with pytest.raises(InvalidParameter, match="give loss with several shares"):
        MixMod(0.5, loss=lambda arrays, context: 0.0)
    with pytest.raises(InvalidParameter, match="share must be 0 to 1"):
        MixMod(2)


@pytest.mark.parametrize("kind", ["plain", "shards", "learngene"])
def test_other_strategies_overlook_what_is_wanted(kind: str) -> None:
    """Without clusters the model is the one that it would be without the mod."""
    found = []
    for mixes in (False, True):
        mods: dict[int, list[Any]] = {}
        for node in range(1, 5):
            mods[node] = [ShardMod(conceal=False)] if kind == "shards" else []
            mods[node] += [MixMod(0.5)] if mixes else []
            mods[node] += [learngene_mod(node)] if kind == "learngene" else []
        inner: Any = sharded(conceal=False) if kind == "shards" else evaluating()
        if kind == "learngene":
            inner = LearngeneStrategy(inner, depth=1, tighten=0)
        found.append(run(grid_of(mods), inner, 2).arrays)
    for name, each in found[0].items():
        np.testing.assert_allclose(each.numpy(), found[1][name].numpy(), atol=1e-6)
