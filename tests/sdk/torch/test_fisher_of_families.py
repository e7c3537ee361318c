"""Networks of transformers: their importance is that of plain autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from modelkin.torch import fisher_importance, layout_of
from tests.sdk.checkpoints.test_families import network

pytestmark = pytest.mark.slow


def last_of(model: Any, inputs: Tensor) -> Tensor:
    """What a network says of the last token."""
    found: Tensor = model(input_ids=inputs).logits[:, -1]
    return found


def by_autograd(model: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of the squared gradients, one backward pass a sample."""
    total = torch.zeros(layout_of(model).num_parameters)
    for sample, target in zip(inputs.split(1), targets.split(1), strict=True):
        model.zero_grad()
        cross_entropy(last_of(model, sample), target).backward()
        rows = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        total += torch.cat([row.reshape(-1) for row in rows]) ** 2
    model.zero_grad()
    return total / len(inputs)


@pytest.mark.parametrize(
    "family", ["BertForMaskedLM", "GPT2LMHeadModel", "LlamaForCausalLM", "MixtralForCausalLM"]
)
def test_a_family_has_the_importance_of_autograd(family: str) -> None:
    """Tied heads, fused layers and experts included."""
    torch.manual_seed(0)
    model = network(family).eval()
    inputs, targets = torch.randint(50, (6, 7)), torch.randint(50, (6,))
    expected = by_autograd(model, inputs, targets)
    actual = fisher_importance(
        model, cross_entropy, [(inputs, targets)], forward=last_of, vectorize=False
    )
    torch.testing.assert_close(expected, actual, rtol=1e-5, atol=float(expected.max()) * 1e-6)
