"""importance="adam" is refused at the start, or at the first step, where it can never work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modelkin.errors import InvalidParameter
from modelkin.integrations._tracker import open_tracker
from modelkin.torch import adam_importance


class Made(torch.optim.Optimizer):
    """An optimizer with betas, whose first step makes some state."""

    def __init__(self, parameters: Any, **state: Callable[[Tensor], Any]) -> None:
        super().__init__(parameters, {"betas": (0.9, 0.99)})
        self.made = state

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.state[parameter] |= {n: make(parameter) for n, make in self.made.items()}


class Lion(Made):
    """As of lion-pytorch."""


class PagedAdamW8bit(Made):
    """As of bitsandbytes."""


class Quantised(Tensor):
    """As torchao wraps its blocks."""


def two_parts() -> nn.ModuleDict:
    return nn.ModuleDict({"used": nn.Linear(4, 2), "pooler": nn.Linear(4, 2)})


def step(model: nn.ModuleDict, optimizer: Any) -> None:
    optimizer.zero_grad()
    model["used"](torch.ones(3, 4)).square().sum().backward()
    optimizer.step()


def squared(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.square()


AT_THE_START: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "Lion": lambda p: Lion(p, exp_avg=torch.zeros_like),
    "PagedAdamW8bit": lambda p: PagedAdamW8bit(p, state1=torch.zeros_like),
    "Adamax": torch.optim.Adamax,
    "Adafactor": torch.optim.Adafactor,
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
}


@pytest.mark.parametrize("kind", AT_THE_START)
def test_classes_without_second_moments(kind: str) -> None:
    """What the class of an optimizer says is refused before the training begins."""
    model = two_parts()
    with pytest.raises(InvalidParameter, match=f"this is a {kind}: importance='moment' goes with"):
        open_tracker("adam", model, AT_THE_START[kind](model.parameters()), 0.9, None)


AT_THE_FIRST_STEP: dict[str, tuple[dict[str, Callable[[Tensor], Any]], str]] = {
    "Lion by another name": ({"exp_avg": torch.zeros_like}, "keeps no exp_avg_sq but 'exp_avg'"),
    "blocks of 8 bits": (
        {"state1": torch.zeros_like, "state2": torch.zeros_like},
        "bitsandbytes', in 8-bit blocks",
    ),
    "a subclass": (
        {"exp_avg_sq": lambda p: torch.zeros_like(p).as_subclass(Quantised)},
        "is quantised",
    ),
    "a part": ({"exp_avg_sq": lambda p: torch.zeros(1)}, "is sharded or flattened"),
}


@pytest.mark.parametrize("kind", AT_THE_FIRST_STEP)
def test_states_without_second_moments(kind: str) -> None:
    """What only the state says ends the training at its first step, with the same advice."""
    state, said = AT_THE_FIRST_STEP[kind]
    model = two_parts()
    optimizer = Made(model.parameters(), **state)
    tracker = open_tracker("adam", model, optimizer, 0.9, None)
    with pytest.raises(InvalidParameter, match=rf"importance='adam' reads.*{said}.*'moment'"):
        step(model, optimizer)
    tracker.close()
    step(model, optimizer)


def test_a_part_that_no_loss_uses_counts_as_zero() -> None:
    """A pooler without a gradient hinders nothing, at no step."""
    model = two_parts()
    for optimizer in (
        torch.optim.AdamW(model.parameters()),
        Made(model.parameters(), exp_avg_sq=squared),
    ):
        tracker = open_tracker("adam", model, optimizer, 0.9, None)
        for _ in range(2):
            step(model, optimizer)
            found = tracker.importance()
            assert torch.equal(adam_importance(optimizer, model), found)
            sizes = [p.numel() for p in model.parameters()]
            used = found.split([sum(sizes[:2]), sum(sizes[2:])])
            assert [True, False] == [bool(part.any()) for part in used]
        tracker.close()
