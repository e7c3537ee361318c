"""What frozen, tied, quantised and mixed parameters and buffers mean to each kind of importance."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from modelkin.torch import (
    GradientMoment,
    adam_importance,
    delta_importance,
    fisher_importance,
    layout_of,
    weight_importance,
)

INPUTS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


class Model(nn.Module):
    """A tied decoder, a buffer, and a head that may be frozen."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.encode = nn.Linear(4, 4, dtype=dtype)
        self.decode = nn.Linear(4, 4, bias=False, dtype=dtype)
        self.decode.weight = self.encode.weight
        self.head = nn.Linear(4, 2)
        self.shift: Tensor
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        wide = self.encode.weight.dtype
        hidden = self.decode(torch.tanh(self.encode(x.to(wide))))
        return self.head(hidden.float() + self.shift)  # type: ignore[no-any-return]


def loss_of(output: Tensor, _: Tensor) -> Tensor:
    return output.square().mean()


def fisher(model: nn.Module) -> Tensor:
    return fisher_importance(model, loss_of, [(INPUTS, INPUTS)])


def moment(model: nn.Module) -> Tensor:
    watched = GradientMoment(model)
    loss_of(model(INPUTS), INPUTS).backward()
    watched.update()
    return watched.importance()


def adam(model: nn.Module) -> Tensor:
    optimizer = torch.optim.AdamW(model.parameters(), 0.0)
    loss_of(model(INPUTS), INPUTS).backward()
    optimizer.step()
    return adam_importance(optimizer, model)


def delta(model: nn.Module) -> Tensor:
    base = copy.deepcopy(model)
    for p in base.parameters():
        p.data += 1.0
    return delta_importance(model, base)


GRADIENTS = [fisher, moment, adam]
VALUES = [weight_importance, delta]


@pytest.mark.parametrize("kind", GRADIENTS)
def test_frozen_parameters_have_no_importance_to_gradients(
    kind: Callable[[nn.Module], Tensor],
) -> None:
    """Kinds made of gradients give frozen parameters exactly 0, and leave them in the layout."""
    model = Model()
    model.encode.bias.requires_grad_(False)
    actual = kind(model)
    assert [True, False, True] == [bool(part.any()) for part in actual.split([16, 4, 10])]


@pytest.mark.parametrize("kind", VALUES)
def test_frozen_parameters_count_by_their_values(kind: Callable[[nn.Module], Tensor]) -> None:
    """Kinds made of values read frozen parameters like all others."""
    model = Model()
    expected = kind(model)
    assert torch.equal(expected, kind(model.requires_grad_(False)))
    assert bool(expected.all())


@pytest.mark.parametrize("kind", [*GRADIENTS, *VALUES])
def test_tied_parameters_and_buffers(kind: Callable[[nn.Module], Tensor]) -> None:
    """A tied parameter has one entry, for all of its uses, and a buffer has none."""
    model = Model()
    assert ["encode.weight", "encode.bias", "head.weight", "head.bias"] == [
        tensor.name for tensor in layout_of(model).tensors
    ]
    assert (30,) == kind(model).shape


@pytest.mark.parametrize("kind", [*GRADIENTS, *VALUES])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_mixed_precisions_make_one_float32_importance(
    kind: Callable[[nn.Module], Tensor], dtype: torch.dtype
) -> None:
    """A model of several precisions has the importance of its float32 twin, as far as its own
    precision carries it.
    """
    model = Model(dtype)
    expected = kind(copy.deepcopy(model).float())
    actual = kind(model)
    assert torch.float32 == actual.dtype
    torch.testing.assert_close(expected, actual, rtol=0.1, atol=float(expected.max()) * 0.02)


@pytest.mark.parametrize("kind", GRADIENTS)
def test_adapters_beside_quantised_weights(kind: Callable[[nn.Module], Tensor]) -> None:
    """Frozen integer weights are accepted: they have importance 0."""
    model = nn.Linear(4, 2)
    model.quantised = nn.Parameter(torch.ones(3, dtype=torch.int8), requires_grad=False)
    actual = kind(model)
    assert [True, False] == [bool(part.any()) for part in actual.split([10, 3])]
