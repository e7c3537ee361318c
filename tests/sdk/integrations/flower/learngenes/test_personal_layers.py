"""Personal layers: the trunk is shared, and each client's head stays (FedPer, FedRep)."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy
from torch import nn
from torch.nn.functional import cross_entropy

from modelkin.integrations.flower import (
    ClusteredStrategy,
    LearngeneMod,
    LearngeneStrategy,
    SupportMod,
    hand_over,
)
from modelkin.torch import fisher_importance, head_then_trunk
from tests.sdk.integrations.flower import federation
from tests.sdk.integrations.flower.learngenes.partial_federation import (
    NODES,
    NotingGrid,
    arrays_of,
    averaging,
)

TRUNK, HEAD = ["0.weight", "0.bias"], ["2.weight", "2.bias"]
Models = dict[int, list[dict[str, torch.Tensor]]]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR, "flwr")


def descend(parameters: Any, model: nn.Module, node: int) -> None:
    inputs, labels = federation.examples(node)
    optimizer = torch.optim.SGD(parameters, 0.2)
    for _ in range(3):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def client(node: int, got: Models, left: Models, *, way: str, shares: bool = True) -> ClientApp:
    """A client that notes the whole models that it gets and leaves; its head never leaves it."""
    mods: list[Any] = [SupportMod()]
    mods += [LearngeneMod(lambda: federation.mlp().state_dict())] if shares else []
    found = ClientApp(mods=mods)

    @found.train()
    def train(message: Message, context: Context) -> Message:
        model = federation.received(message)
        got.setdefault(node, []).append({n: v.clone() for n, v in model.state_dict().items()})
        hand_over(fisher_importance(model, cross_entropy, [federation.examples(node)]))
        phases = head_then_trunk(model) if way == "FedRep" else [list(model.parameters())]
        for parameters in phases:
            descend(parameters, model, node)
        left.setdefault(node, []).append({n: v.clone() for n, v in model.state_dict().items()})
        return federation.reply(message, model, {"num-examples": 30})

    @found.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        model, (inputs, labels) = federation.received(message), federation.examples(node)
        right = (model(inputs).argmax(1) == labels).float().mean().item()
        return federation.reply(message, None, {"num-examples": 30, "accuracy": right})

    return found


def evaluating() -> FedAvg:
    inner = averaging()
    inner.fraction_evaluate = 1.0
    return inner


def run(grid: NotingGrid, strategy: Strategy, rounds: int) -> Any:
    arrays = ArrayRecord(federation.mlp().state_dict())
    return strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["FedPer", "FedRep"])
@pytest.mark.parametrize("clustered", [False, True])
def test_heads_stay_and_trunks_are_averaged(way: str, clustered: bool) -> None:
    """For three rounds, of all clients and within clusters by supports."""
    got: Models = {}
    left: Models = {}
    grid = NotingGrid({node: client(node, got, left, way=way) for node in NODES})
    inner = LearngeneStrategy(evaluating(), tighten=0)
    strategy = ClusteredStrategy(inner, per_cluster=True) if clustered else inner
    result = run(grid, strategy, 3)
    assert set(TRUNK) == grid.returned
    assert all(set(TRUNK) == set(arrays_of(m)) for m in grid.sent if m.content.array_records)
    carried = b"".join(grid.carried)
    for node in NODES:
        for before, after in zip(left[node], got[node][1:], strict=False):
            for name in HEAD:  # the next message finds it as the app left it
                assert torch.equal(before[name], after[name])
        for model in left[node]:
            assert not any(model[name].numpy().tobytes() in carried for name in HEAD)
    for at in (1, 2):
        for node in NODES:
            kin = [k for k in NODES if not clustered or k % 2 == node % 2]
            exact = np.mean([left[k][at - 1][TRUNK[0]].double().numpy() for k in kin], axis=0)
            np.testing.assert_allclose(got[node][at][TRUNK[0]].numpy(), exact, atol=1e-6)
    accuracy = result.evaluate_metrics_clientapp[3]["accuracy"]
    assert accuracy > 0.8  # one model for all has at most half: groups name classes otherwise


def test_only_the_trunk_costs_bytes() -> None:
    """Each message is smaller than that of a whole model by the head, and little more."""
    costs = {}
    for shares in (False, True):
        got: Models = {}
        grid = NotingGrid({n: client(n, got, {}, way="FedPer", shares=shares) for n in NODES})
        inner: Strategy = LearngeneStrategy(averaging(), tighten=0) if shares else averaging()
        strategy = ClusteredStrategy(inner, per_cluster=True)
        run(grid, strategy, 2)
        costs[shares] = strategy.costs
    head = sum(v.numel() * 4 for n, v in federation.mlp().state_dict().items() if n in HEAD)
    for number in (1, 2):
        for node in NODES:
            whole, trunk = costs[False][number], costs[True][number]
            for saved in (whole.down[node] - trunk.down[node], whole.up[node] - trunk.up[node]):
                assert head <= saved + 8 <= head + 600, saved
