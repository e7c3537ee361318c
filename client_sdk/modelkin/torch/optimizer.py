"""Importance from an optimizer like Adam, which keeps an average of squared gradients anyway.

Such importance needs no pass over data and no work while training. The optimizer never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from modelkin.errors import InvalidParameter
from modelkin.torch.vector import (
    in_layout_order,
    is_sharded,
    join_names,
    readable_parameters,
    trainable_of,
)

__all__ = ["adam_importance", "check_keeps_second_moments"]

ADVICE = "record one with modelkin.torch.GradientMoment while training instead"


def adam_importance(optimizer: torch.optim.Optimizer, model: nn.Module) -> Tensor:
    """Adam's second moment: the running average of squared mini-batch gradients per step.

    The moment is ``exp_avg_sq / (1 - beta2 ** step)``, as Adam itself corrects it, so that
    parameters added later compare with earlier ones. With beta2 = 0.999 it averages over about a
    thousand steps. It includes the weight decay that Adam (not AdamW) adds to the gradients.

    Args:
        optimizer: Adam, AdamW, NAdam, RAdam, SparseAdam or any other that keeps ``exp_avg_sq`` for
            each parameter, after at least one step.
        model: the module whose parameters the optimizer trains.

    Returns:
        float32 of shape ``(M,)`` on the device of the first parameter, in the order of
        ``layout_of(model)``; exactly 0 for frozen parameters (``requires_grad=False``) and for
        those that no step gave a gradient.

    Raises:
        InvalidParameter: the optimizer keeps no such average, or an 8-bit or sharded one; it has
            not stepped, or does not train a trainable parameter (names which); a parameter is
            sharded, complex or quantised.
        InvalidImportance: a number is NaN or infinite.
        InvalidLayout: see ``layout_of``.

    Source: Kingma and Ba, Adam (2015), Algorithm 1.
    """
    parameters = readable_parameters(model)
    trainable = trainable_of(parameters)
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    _check_has_state(optimizer, trainable, groups)

    def second_moment(name: str) -> Tensor | None:
        parameter = trainable.get(name)
        state = None if parameter is None else optimizer.state.get(parameter)
        if parameter is None or not state:
            return None
        average = _check_average(repr(name), state, parameter, optimizer)
        return average.float() / _correction(state, groups[id(parameter)])

    return in_layout_order(parameters, second_moment, "second moment", kind="adam")


def check_keeps_second_moments(optimizer: torch.optim.Optimizer) -> None:
    """Check the state that an optimizer has so far.

    Raises:
        InvalidParameter: it keeps no plain, unsharded ``exp_avg_sq``; says what instead.
    """
    for parameter, state in optimizer.state.items():
        if state:
            _check_average("a parameter", state, parameter, optimizer)


def _check_has_state(
    optimizer: torch.optim.Optimizer,
    trainable: Mapping[str, nn.Parameter],
    groups: Mapping[int, Mapping[str, Any]],
) -> None:
    kind = type(optimizer).__name__
    untrained = [name for name, p in trainable.items() if id(p) not in groups]
    if untrained:
        raise InvalidParameter(
            f"this {kind} does not train {join_names(untrained)}: freeze what counts as zero "
            f"(requires_grad_(False)), and pass the optimizer that trains this very model (a "
            f"sharding wrapper trains copies of its own)",
            field="optimizer",
        )
    if not any(optimizer.state.get(p) for p in trainable.values()):
        raise InvalidParameter(
            f"this {kind} has no state: take a training step first, or load its state dict",
            field="optimizer",
        )


def _check_average(
    name: str, state: Mapping[str, Any], parameter: Tensor, optimizer: torch.optim.Optimizer
) -> Tensor:
    """Return the average as a plain, unsharded tensor of the parameter's shape."""
    average, kind = state.get("exp_avg_sq"), type(optimizer).__name__
    if average is None and "state2" in state:
        raise InvalidParameter(
            f"the state of {name} in this {kind} is bitsandbytes', in 8-bit blocks, which are "
            f"not supported: {ADVICE}",
            field="optimizer",
        )
    if not isinstance(average, Tensor):
        raise InvalidParameter(
            f"this {kind} keeps no exp_avg_sq but {join_names(state)}: {ADVICE}", field="optimizer"
        )
    if is_sharded(average) or average.shape != parameter.shape:
        raise InvalidParameter(
            f"the state of {name} is sharded or flattened ({type(average).__name__} of shape "
            f"{tuple(average.shape)}): gather it first, with "
            f"torch.distributed.checkpoint.state_dict.get_optimizer_state_dict and "
            f"full_state_dict=True, and load it into an optimizer of the whole model",
            field="optimizer",
        )
    if type(average) not in (Tensor, nn.Parameter) or not average.is_floating_point():
        raise InvalidParameter(
            f"the state of {name} is quantised ({type(average).__name__} of {average.dtype}): "
            f"{ADVICE}",
            field="optimizer",
        )
    return average


def _correction(state: Mapping[str, Any], group: Mapping[str, Any]) -> float:
    """``1 - beta2 ** step``; 1 if the optimizer counts no steps."""
    step, betas = state.get("step", group.get("step")), group.get("betas")
    if step is None or betas is None or float(step) == 0:
        return 1.0
    corrected: float = 1.0 - float(betas[1]) ** float(step)
    return corrected
