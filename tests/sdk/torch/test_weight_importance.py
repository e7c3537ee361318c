"""weight_importance and delta_importance read a checkpoint alone: |w|, and |w - w_base|."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modelkin.errors import InvalidImportance, InvalidLayout, InvalidParameter
from modelkin.torch import delta_importance, weight_importance


def model_with_buffers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def moved(model: nn.Module) -> nn.Module:
    """A fine-tuned copy: other weights, other buffers."""
    tuned = copy.deepcopy(model)
    for tensor in [*tuned.parameters(), *tuned.buffers()]:
        if tensor.is_floating_point():
            tensor.data += torch.randn_like(tensor)
    return tuned


def test_weight_is_the_absolute_value_in_layout_order() -> None:
    """|w| of all parameters, no buffer among them; the model is not changed."""
    model = model_with_buffers()
    before = flat(model).clone()
    actual = weight_importance(model)
    assert torch.equal(before.abs(), actual)
    assert torch.equal(before, flat(model))


@pytest.mark.parametrize("base_of", [lambda model: model, lambda model: model.state_dict()])
def test_delta_is_the_distance_from_the_base(base_of: Callable[[nn.Module], Any]) -> None:
    """|w - w_base| in layout order, from a model or from its state dict with buffers."""
    base = model_with_buffers()
    tuned = moved(base)
    expected = (flat(tuned) - flat(base)).abs()
    assert torch.equal(expected, delta_importance(tuned, base_of(base)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_half_precisions_are_compared_without_their_rounding(dtype: torch.dtype) -> None:
    """What the dtype of the weights rounds away is no difference; the least one beyond counts."""
    base = nn.Linear(3, 1, bias=False)
    tuned = copy.deepcopy(base)
    tuned.weight.data = torch.tensor([[1.0, 0.25, 1.5]]).to(dtype)
    base.weight.data = torch.tensor([[1 + 2**-12, 0.25, 1.0]])
    step = torch.finfo(dtype).eps
    assert [0.0, 0.0, 0.5 - step / 2] == delta_importance(tuned, base).tolist()
    assert [1.0, 0.25, 1.5] == weight_importance(tuned).tolist()


def test_float64_is_subtracted_in_float64() -> None:
    """Where either has float64 the difference is rounded once, at the end."""
    base, tuned = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False).double()
    base.weight.data[:] = 1.0
    tuned.weight.data[:] = 1.0 + 1e-12
    assert pytest.approx(1e-12, rel=1e-3) == delta_importance(tuned, base).item()


def lacking() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2, bias=False))


def beyond() -> nn.Module:
    return nn.Sequential(*model_with_buffers(), nn.Linear(2, 2, bias=False))


def of_another_shape() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 5))


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (lacking(), r"it lacks '2\.bias'$"),
        (beyond(), r"it also has '3\.weight'$"),
        (beyond().state_dict(), r"it also has '3\.weight'$"),
        (of_another_shape(), r"'2\.weight \(5, 3\) instead of \(2, 3\)', '2\.bias"),
        ({}, r"it lacks '0\.weight', .* and 1 more$"),
    ],
)
def test_bases_of_another_layout_are_told_by_tensor(base: Any, message: str) -> None:
    """The error names the tensors that are missing, too many or of another shape."""
    with pytest.raises(InvalidLayout, match=message):
        delta_importance(model_with_buffers(), base)


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("base.safetensors", "a model or a state dict, not a str"),
        ({"weight": torch.ones(1, 2, dtype=torch.int8)}, "'weight' of the base is torch.int8"),
    ],
)
def test_what_is_no_base(base: Any, message: str) -> None:
    """A path and a quantised state dict are refused."""
    with pytest.raises(InvalidParameter, match=message):
        delta_importance(nn.Linear(2, 1, bias=False), base)


@pytest.mark.parametrize(
    "kind", [weight_importance, lambda m: delta_importance(m, nn.Linear(2, 1))]
)
def test_weights_that_are_no_numbers_name_their_tensor(kind: Callable[[nn.Module], Tensor]) -> None:
    """A NaN weight is an error with the name of its parameter."""
    model = nn.Linear(2, 1)
    model.bias.data[0] = torch.nan
    with pytest.raises(
        InvalidImportance, match=r"^the (weight|difference to the base) of 'bias' is NaN"
    ):
        kind(model)


def test_quantised_weights_are_refused() -> None:
    """Weights that are integers have no absolute value that means anything here."""
    model = nn.Linear(2, 1, bias=False)
    model.weight = nn.Parameter(torch.ones(1, 2, dtype=torch.int8), requires_grad=False)
    with pytest.raises(InvalidParameter, match=r"'weight' is torch\.int8.*dequantise"):
        weight_importance(model)
