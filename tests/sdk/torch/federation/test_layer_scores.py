"""Scores of the layers of torch models and state dicts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modelkin.errors import InvalidParameter
from modelkin.torch import layer_changes, layer_dispersion, printed_scores


def network(seed: int, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 30), nn.BatchNorm1d(30), nn.Linear(30, 2)).to(dtype)


def flat(layer: nn.Module) -> Tensor:
    return torch.cat([p.detach().double().reshape(-1) for p in layer.parameters()])


@pytest.mark.parametrize("given", [lambda m: m, lambda m: m.state_dict()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_changes(given: Callable[[nn.Module], Any], dtype: torch.dtype) -> None:
    """Of each layer's parameters, computed in float64; beside a model buffers do not count."""
    before, after = network(0, dtype), network(1, dtype)
    after.get_buffer("1.running_mean").fill_(100)
    with torch.no_grad():
        after.get_parameter("1.weight").mul_(1.5)
    expected = {
        name: float((flat(b) - flat(a)).norm() / flat(a).norm())
        for (name, a), (_, b) in zip(before.named_children(), after.named_children(), strict=True)
    }
    assert pytest.approx(expected, rel=1e-12) == layer_changes(before, given(after))
    assert ["0", "1", "2"] == [*layer_changes(given(before), after)]


def test_of_two_state_dicts_all_floats_count() -> None:
    """Buffers of floats, too; counters do not."""
    before = network(0).state_dict()
    after = copy.deepcopy(before)
    after["1.running_mean"] += 1
    after["1.num_batches_tracked"] += 5
    found = layer_changes(before, after)
    assert 0 < found["1"]
    assert 0 == found["0"] == found["2"]


def test_dispersion() -> None:
    """Zero where all members have the same layer."""
    members = [network(seed) for seed in range(3)]
    for member in members:
        member[0].load_state_dict(members[0][0].state_dict())
    found = layer_dispersion(members)
    stacked = torch.stack([flat(member[2]) for member in members])
    mean = stacked.mean(0)
    expected = ((stacked - mean) ** 2).sum() / 3 / (mean**2).sum()
    assert pytest.approx(0, abs=1e-12) == found["0"]
    assert pytest.approx(float(expected), rel=1e-12) == found["2"]


def test_the_printed_scores_sort_by_size() -> None:
    """The layer of most weights has the lowest score, although it has moved most."""
    before = network(0)
    after = copy.deepcopy(before)
    with torch.no_grad():
        after.get_parameter("0.weight").add_(1.0)
    found = printed_scores(before, after)
    assert pytest.approx(1.0) == sum(found.values())
    assert "0" == min(found, key=lambda name: found[name])
    assert "0" == max(layer_changes(before, after).items(), key=lambda item: item[1])[0]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Linear(4, 30), "only one of them has the tensor"),
        ("model.safetensors", "a model or a state dict, not a str"),
        ({"0.weight": torch.ones(4, 30, dtype=torch.int8)}, "'0.weight' is torch.int8"),
    ],
)
def test_what_cannot_be_compared(other: Any, message: str) -> None:
    """Another model, a path, quantised weights."""
    with pytest.raises(InvalidParameter, match=message):
        layer_changes(network(0), other)
