"""Private layers train first, with the trunk frozen, and then the trunk."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from modelkin.errors import InvalidParameter
from modelkin.torch import head_then_trunk

X = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(20) % 3


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        trunk = [nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU()]
        return nn.Sequential(*trunk, nn.Linear(4, 3))


def step(model: nn.Module, parameters: list[nn.Parameter]) -> set[str]:
    """Train a little, and return the names of the parameters that moved."""
    before = deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(parameters, lr=0.5, momentum=0.9, weight_decay=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        cross_entropy(model(X), Y).backward()
        optimizer.step()
    return {n for n, v in model.state_dict().items() if not torch.equal(v, before[n])}


@pytest.mark.parametrize(
    ("choice", "head"),
    [
        ({}, {"4.weight", "4.bias"}),
        ({"depth": 1}, {"2.weight", "2.bias", "4.weight", "4.bias"}),
        ({"tensors": ["2.*"]}, {"0.weight", "0.bias", "4.weight", "4.bias"}),
        ({"share": 0.6}, {"2.weight", "2.bias", "4.weight", "4.bias"}),
    ],
)
def test_each_phase_moves_its_own_layers_alone(choice: Any, head: set[str]) -> None:
    """Decay and momentum included: frozen layers keep every bit."""
    model = network()
    moved = [step(model, parameters) for parameters in head_then_trunk(model, **choice)]
    assert [head, set(model.state_dict()) - head] == moved


def test_a_whole_optimizer_moves_one_phase_too() -> None:
    """Frozen parameters take no gradients, so an optimizer of all skips them."""
    model, moved = network(), []
    for _ in head_then_trunk(model):
        moved.append(step(model, list(model.parameters())))
        model.zero_grad()
    assert [{"4.weight", "4.bias"}, {"0.weight", "0.bias", "2.weight", "2.bias"}] == moved


def test_parameters_are_as_before_afterwards() -> None:
    """Also where the loop is left early; what was frozen before is in no phase."""
    model = network()
    model[0].bias.requires_grad_(False)
    was = [each.requires_grad for each in model.parameters()]
    phases = [list(map(id, each)) for each in head_then_trunk(model)]
    assert was == [each.requires_grad for each in model.parameters()]
    assert all(id(model[0].bias) not in phase for phase in phases)
    for _ in head_then_trunk(model):
        break
    assert was == [each.requires_grad for each in model.parameters()]


def test_a_choice_that_does_not_fit_is_refused_at_once() -> None:
    """Before the first phase, as by the mod that shares the layers."""
    with pytest.raises(InvalidParameter, match="depth must be 1 to 2, not 3"):
        head_then_trunk(network(), depth=3)
