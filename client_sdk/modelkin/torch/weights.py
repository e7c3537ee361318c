"""Importance from weights alone: their magnitude, or their difference to a base.

It needs neither data nor optimizer, and never runs a model. Every parameter counts, frozen or not:
its value shows whether it was trained.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from modelkin.errors import InvalidLayout, InvalidParameter
from modelkin.torch.layout import parameters_of
from modelkin.torch.vector import (
    in_layout_order,
    is_sharded,
    join_names,
    readable_parameters,
    wide_dtype,
)

__all__ = ["delta_importance", "weight_importance"]


def weight_importance(model: nn.Module) -> Tensor:
    """``|w|`` of every parameter, frozen ones too.

    Args:
        model: any, in any precision; half precisions are read as float32, exactly.

    Returns:
        float32 of shape ``(M,)`` on the device of the first parameter, in the order of
        ``layout_of(model)``.

    Raises:
        InvalidParameter: a parameter is sharded, complex or quantised.
        InvalidImportance: a weight is NaN or infinite.
        InvalidLayout: as ``layout_of``.
    """
    parameters = readable_parameters(model, frozen_too=True)
    return in_layout_order(
        parameters, lambda name: parameters[name].to(wide_dtype(parameters[name])).abs(), "weight"
    )


def delta_importance(model: nn.Module, base: nn.Module | Mapping[str, Tensor]) -> Tensor:
    """``|w - w_base|`` of every parameter, the magnitude of the task vector; 0 if not trained.

    Args:
        model: the fine-tuned model.
        base: the model that was fine-tuned, of the same layout, or its state dict, in which buffers
            and second names of tied parameters do not matter. It may have another device and
            precision: the difference is taken in float32, or in float64 if either has it.

    Returns:
        As :func:`weight_importance`.

    Raises:
        InvalidLayout: names the parameters that differ in name or shape.
        InvalidParameter: as :func:`weight_importance`, of either.
        InvalidImportance: a difference is NaN or infinite.

    Source: Ilharco et al., Editing Models with Task Arithmetic (2023), section 2, for the task
    vector.
    """
    parameters = readable_parameters(model, frozen_too=True)
    before = _base_of(model, base)
    _check_same_layout(parameters, before)

    def difference(name: str) -> Tensor:
        after, dtype = parameters[name], wide_dtype(parameters[name], before[name])
        return before[name].to(device=after.device, dtype=dtype).sub(after.to(dtype)).abs_()

    return in_layout_order(parameters, difference, "difference to the base")


def _base_of(model: nn.Module, base: nn.Module | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The base's tensors by name, without those that are not parameters of the model."""
    if isinstance(base, nn.Module):
        return parameters_of(base)
    if not isinstance(base, Mapping):
        raise InvalidParameter(
            f"base must be a model or a state dict, not a {type(base).__name__}", field="base"
        )
    parameters = dict(parameters_of(model))
    others = set(model.state_dict()) - set(parameters)  # buffers, and second names of tied ones
    return {name: tensor for name, tensor in base.items() if name not in others}


def _check_same_layout(
    parameters: Mapping[str, nn.Parameter], before: Mapping[str, Tensor]
) -> None:
    missing = [name for name in parameters if name not in before]
    extra = [name for name in before if name not in parameters]
    shapes = [
        f"{name} {tuple(before[name].shape)} instead of {tuple(parameter.shape)}"
        for name, parameter in parameters.items()
        if name in before and before[name].shape != parameter.shape
    ]
    reasons = [
        f"{what} {join_names(names)}"
        for what, names in (("it lacks", missing), ("it also has", extra), ("shapes:", shapes))
        if names
    ]
    if reasons:
        raise InvalidLayout(
            f"the base has another layout than the model: {'; '.join(reasons)}", field="base"
        )
    for name in parameters:
        tensor = before[name]
        if is_sharded(tensor) or not tensor.is_floating_point():
            raise InvalidParameter(
                f"{name!r} of the base is {'sharded' if is_sharded(tensor) else tensor.dtype}: "
                f"gather or dequantise it first",
                field="base",
            )
