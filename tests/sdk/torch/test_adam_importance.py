"""adam_importance is the second moment that Adam keeps, or an error that says why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from modelkin.errors import InvalidImportance, InvalidParameter
from modelkin.torch import GradientMoment, adam_importance, weight_importance

INPUTS = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


def stepped(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3
) -> torch.optim.Optimizer:
    for step in range(steps):
        optimizer.zero_grad()
        model(INPUTS * (step + 1)).square().mean().backward()
        optimizer.step()
    return optimizer


ADAMS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda p: torch.optim.Adam(p, betas=(0.9, 0.95)),
    lambda p: torch.optim.Adam(p, betas=(0.9, 0.95), amsgrad=True),
    lambda p: torch.optim.Adam(p, betas=(0.9, 0.95), fused=True),
    lambda p: torch.optim.AdamW(p, betas=(0.9, 0.95), weight_decay=0.5),
    lambda p: torch.optim.NAdam(p, betas=(0.9, 0.95)),
    lambda p: torch.optim.RAdam(p, betas=(0.9, 0.95)),
]


@pytest.mark.parametrize("adam", ADAMS)
def test_equals_the_moment_of_the_same_beta(adam: Callable[[Any], torch.optim.Optimizer]) -> None:
    """Adam's corrected second moment is GradientMoment's average with beta = beta2."""
    model = two_layers()
    optimizer = adam(model.parameters())
    with GradientMoment(model, optimizer, beta=0.95) as moment:
        stepped(model, optimizer)
    torch.testing.assert_close(
        moment.importance(), adam_importance(optimizer, model), rtol=1e-5, atol=1e-12
    )


def test_who_joins_later_is_corrected_by_its_own_steps() -> None:
    """A parameter that was unfrozen later compares with the others: each has its own correction."""
    model = two_layers()
    model[0].requires_grad_(False)
    optimizer = stepped(model, torch.optim.Adam(model.parameters(), 0.0))
    model[0].requires_grad_(True)
    optimizer.zero_grad()
    model(INPUTS).square().mean().backward()
    gradient = model.get_parameter("0.weight").grad
    assert gradient is not None
    expected = gradient.square()
    optimizer.step()
    torch.testing.assert_close(
        expected.reshape(-1), adam_importance(optimizer, model)[:12], rtol=1e-5, atol=1e-12
    )


def test_half_precision_states_are_read_as_they_are() -> None:
    """A bf16 model's moments come as float32, widened without another rounding."""
    model = nn.Linear(4, 2, bias=False).bfloat16()
    model.weight.grad = torch.full_like(model.weight, 0.5)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.5))
    optimizer.step()
    actual = adam_importance(optimizer, model)
    assert torch.equal(torch.full((8,), 0.25), actual)


def refused(optimizer: torch.optim.Optimizer, model: nn.Module, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        adam_importance(optimizer, model)


def test_an_optimizer_that_never_stepped_is_refused() -> None:
    """Without any state the error says that a step is missing."""
    model = two_layers()
    refused(torch.optim.Adam(model.parameters()), model, "Adam has no state: take a training step")


def test_parts_that_no_step_used_count_as_zero() -> None:
    """A trainable parameter that no step gave a gradient is zero, frozen or not, as elsewhere."""
    model = nn.ModuleDict({"used": nn.Linear(4, 2), "idle": nn.Linear(4, 2)})
    optimizer = torch.optim.Adam(model.parameters())
    model["used"](INPUTS).sum().backward()
    optimizer.step()
    for _ in range(2):
        actual = adam_importance(optimizer, model)
        assert [True, False] == [bool(part.any()) for part in (actual[:10], actual[10:])]
        model["idle"].requires_grad_(False)


def test_parameters_of_no_optimizer_are_named() -> None:
    """What the optimizer does not train has no moment in it, and is not taken for zero."""
    model = two_layers()
    optimizer = stepped(model, torch.optim.AdamW(model[1].parameters()))
    refused(optimizer, model, r"AdamW does not train '0\.weight', '0\.bias': freeze")
    refused(optimizer, two_layers(), r"'1\.bias'.*the optimizer that trains this very model")


@pytest.mark.parametrize(
    ("optimizer_of", "kept"),
    [
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), "'momentum_buffer'"),
        (lambda p: torch.optim.RMSprop(p, 0.1), "'square_avg'"),
        (lambda p: torch.optim.Adafactor(p, 0.1), "row_var"),
        (lambda p: torch.optim.Adamax(p, 0.1), "'exp_inf'"),
    ],
)
def test_optimizers_without_a_second_moment(optimizer_of: Any, kept: str) -> None:
    """The refusal of another optimizer says what it keeps, and what to use instead."""
    model = two_layers()
    optimizer = stepped(model, optimizer_of(model.parameters()))
    refused(optimizer, model, rf"keeps no exp_avg_sq but.*{kept}.*GradientMoment")


def test_optimizers_without_state_at_all() -> None:
    """The refusal of plain SGD says that it keeps nothing."""
    model = two_layers()
    refused(stepped(model, torch.optim.SGD(model.parameters(), 0.1)), model, "SGD has no state")


class Quantised(Tensor):
    """As torchao wraps 8-bit blocks: a tensor subclass of the parameter's shape."""


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda v: {"state1": v, "state2": v.byte()}, "bitsandbytes', in 8-bit.*GradientMoment"),
        (lambda v: {"exp_avg_sq": v.byte()}, r"quantised \(Tensor of torch\.uint8\)"),
        (lambda v: {"exp_avg_sq": v.as_subclass(Quantised)}, r"quantised \(Quantised of"),
        (lambda v: {"exp_avg_sq": v.reshape(-1)[:5]}, r"sharded or flattened.*full_state_dict"),
    ],
)
def test_states_that_are_no_whole_plain_tensor(state: Any, message: str) -> None:
    """8-bit and sharded moments are refused with the way out, never read as if they were whole."""
    model = nn.Linear(4, 2, bias=False)
    optimizer = stepped(model, torch.optim.Adam(model.parameters()))
    optimizer.state[model.weight] = state(optimizer.state[model.weight]["exp_avg_sq"])
    refused(optimizer, model, message)


@pytest.fixture
def sharded(tmp_path: Path) -> Iterator[nn.Linear]:
    """A model whose weight is a DTensor, over the one process that there is."""
    # They import half a second's worth, which no other test needs.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    rendezvous = f"file://{tmp_path}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=0, world_size=1)
    model = nn.Linear(4, 2, bias=False)
    mesh = init_device_mesh("cpu", (1,))
    model.weight = nn.Parameter(distribute_tensor(model.weight.detach(), mesh))
    yield model
    dist.destroy_process_group()


# torch 2.6 warns where a CPU makes a DTensor.
OF_A_CPU = pytest.mark.filterwarnings("ignore:DTensor random operators:UserWarning")


@OF_A_CPU
def test_sharded_models_are_refused(sharded: nn.Linear) -> None:
    """A DTensor parameter is named by every kind of importance, with how to gather it."""
    optimizer = torch.optim.Adam(sharded.parameters())
    for kind in (
        lambda: adam_importance(optimizer, sharded),
        lambda: weight_importance(sharded),
        lambda: GradientMoment(sharded),
    ):
        with pytest.raises(InvalidParameter, match=r"'weight' is sharded \(DTensor\).*full_tensor"):
            kind()


@OF_A_CPU
def test_sharded_states_are_refused(sharded: nn.Linear) -> None:
    """A DTensor moment of a whole parameter is refused too, naming the function that gathers it."""
    model = nn.Linear(4, 2, bias=False)
    optimizer = stepped(model, torch.optim.Adam(model.parameters()))
    optimizer.state[model.weight]["exp_avg_sq"] = sharded.weight.detach()
    refused(optimizer, model, "sharded or flattened.*get_optimizer_state_dict")


def test_a_moment_that_is_no_number_names_its_parameter() -> None:
    """A NaN in the optimizer's state is an error that says where."""
    model = two_layers()
    optimizer = stepped(model, torch.optim.Adam(model.parameters()))
    optimizer.state[model.get_parameter("1.weight")]["exp_avg_sq"][0, 0] = torch.nan
    with pytest.raises(InvalidImportance, match=r"second moment of '1\.weight' is NaN"):
        adam_importance(optimizer, model)
