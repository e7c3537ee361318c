"""Importance from weights alone: their magnitude, or their difference to a base.

Such importance needs neither data nor optimizer, and never runs a model. Every parameter counts,
frozen or not: its value shows whether it was trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

import torch
from torch import Tensor, nn

from modelkin.core.layout import Layout
from modelkin.core.rounding import FLOAT_FORMATS, FloatFormat, is_rounded
from modelkin.core.weights import WeightsDigest
from modelkin.errors import InvalidLayout, InvalidParameter
from modelkin.torch.layout import parameters_of, plain
from modelkin.torch.vector import (
    in_layout_order,
    is_sharded,
    join_names,
    readable_parameters,
    wide_dtype,
)

__all__ = ["delta_importance", "least_changes", "weight_importance", "weights_digest"]

STRETCH_SIZE = 1 << 22
"""The number of weights copied to this machine and hashed at a time: 16 MiB of float32."""

_FORMATS: Final = {
    torch.float64: FLOAT_FORMATS["F64"],
    torch.float32: FLOAT_FORMATS["F32"],
    torch.float16: FLOAT_FORMATS["F16"],
    torch.bfloat16: FLOAT_FORMATS["BF16"],
    torch.float8_e4m3fn: FLOAT_FORMATS["F8_E4M3"],
    torch.float8_e5m2: FLOAT_FORMATS["F8_E5M2"],
    torch.float8_e4m3fnuz: FLOAT_FORMATS["F8_E4M3FNUZ"],
    torch.float8_e5m2fnuz: FLOAT_FORMATS["F8_E5M2FNUZ"],
}

_EXPONENT: Final = 0x7F800000
"""The bits of a float32's exponent."""


def weight_importance(model: nn.Module, *, exclude: Iterable[str] = ()) -> Tensor:
    """The magnitude ``|w|`` of every parameter, frozen or not.

    Args:
        model: any model, in any precision; half precisions are read as float32, exactly.
        exclude: shell patterns of parameters to leave out, such as ``"*.stft.*"``.

    Returns:
        float32 of shape ``(M,)`` on the device of the first parameter, in the order of
        ``layout_of(model, exclude)``.

    Raises:
        InvalidParameter: a parameter is sharded, complex or quantised; a pattern without a match.
        InvalidImportance: a weight is NaN or infinite.
        InvalidLayout: see ``layout_of``.
    """
    parameters = readable_parameters(model, frozen_too=True, exclude=exclude)

    def magnitude(name: str) -> Tensor:
        return parameters[name].to(wide_dtype(parameters[name])).abs()

    return in_layout_order(parameters, magnitude, "weight", kind="weight")


def delta_importance(
    model: nn.Module, base: nn.Module | Mapping[str, Tensor], *, exclude: Iterable[str] = ()
) -> Tensor:
    """``|w - w_base|`` of every parameter, the magnitude of the task vector; 0 if not trained.

    Where a parameter is of less precision than in the base, it is the least difference that gives
    the parameter's value: rounding by at most half a step of its dtype counts as 0.

    The digest of the base's weights is computed beside it, so that a space can distinguish deltas
    from different bases.

    Args:
        model: the fine-tuned model.
        base: the model that was fine-tuned, of the same layout, or its state dict, in which buffers
            and second names of tied parameters do not matter. It may have another device and
            precision: the difference is taken in float32, or in float64 if either has it.
        exclude: patterns for both models, see :func:`weight_importance`.

    Returns:
        A vector like that of :func:`weight_importance`.

    Raises:
        InvalidLayout: names the parameters that differ in name or shape.
        InvalidParameter: see :func:`weight_importance`, for either model.
        InvalidImportance: a difference is NaN or infinite.

    Source: Ilharco et al., Editing Models with Task Arithmetic (2023), section 2, for the task
    vector.
    """
    exclude = tuple(exclude)
    parameters = plain(readable_parameters(model, frozen_too=True, exclude=exclude))
    before = _base_of(model, base, exclude)
    _check_same_layout(parameters, before)

    def difference(name: str) -> Tensor:
        return least_changes(parameters[name], before[name].to(parameters[name].device))

    digest = _digest({name: before[name] for name in parameters})
    return in_layout_order(
        parameters, difference, "difference to the base", kind="delta", base=digest
    )


def weights_digest(weights: nn.Module | Mapping[str, Tensor], layout: Layout | None = None) -> str:
    """The digest that identifies a base: over names, shapes and values as float32.

    The digest equals that of ``modelkin.checkpoints.weights_digest`` for the same weights, whatever
    their order, dtype and device.

    Args:
        weights: a model, whose parameters count, or a state dict, whose tensors of floats count.
        layout: only the tensors that it names count, so that buffers and excluded tensors do not.

    Returns:
        ``sha256:`` and 64 hex digits.

    Raises:
        InvalidParameter: ``weights`` is neither a model nor a state dict, or a tensor is sharded or
            quantised.
        SpaceMismatch: a tensor of the layout is missing, or of another shape; names the tensor.
    """
    if isinstance(weights, nn.Module):
        found: Mapping[str, Tensor] = parameters_of(weights)
    elif isinstance(weights, Mapping):
        found = {
            n: t for n, t in weights.items() if isinstance(t, Tensor) and t.is_floating_point()
        }
    else:
        raise InvalidParameter(
            f"weights must be a model or a state dict, not a {type(weights).__name__}",
            field="weights",
        )
    found = plain(found)
    if layout is not None:
        shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
        layout.require_among(shapes)
        found = {spec.name: found[spec.name] for spec in layout.tensors}
    for name, tensor in found.items():
        if is_sharded(tensor) or not tensor.is_floating_point():
            raise InvalidParameter(
                f"{name!r} is {'sharded' if is_sharded(tensor) else tensor.dtype}: gather or "
                f"dequantise it first",
                field="weights",
            )
    return _digest(found)


@torch.no_grad()
def least_changes(after: Tensor, before: Tensor) -> Tensor:
    """The least ``|d|`` for which ``before + d`` is stored as ``after``, in the wider dtype.

    The numbers are those of :func:`modelkin.core.rounding.least_changes`, bit for bit.
    """
    dtype = wide_dtype(after, before)
    changes = before.to(dtype).sub(after.to(dtype)).abs_()
    stored, of_base = _FORMATS.get(after.dtype), _FORMATS.get(before.dtype)
    if stored is None or of_base is None or not is_rounded(of_base, stored):
        return changes
    magnitudes = after.to(torch.float32).abs()
    bits = magnitudes.view(torch.int32)
    powers = ((bits - (before.to(dtype).abs() < magnitudes).int()) & _EXPONENT).view(torch.float32)
    steps = _steps(powers, stored)
    steps[_steps(powers, of_base) >= steps] = 0
    return changes.to(torch.float32).sub_(steps.mul_(0.5)).clamp_(min=0)


def _steps(powers: Tensor, form: FloatFormat) -> Tensor:
    """The distance of a format's values beside each power of two."""
    return powers.clamp(min=2.0 ** max(form.least, -126)).mul_(2.0**-form.mantissa)


@torch.no_grad()
def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = WeightsDigest()
    for name, tensor in tensors.items():
        stretches = torch.split(tensor.detach().reshape(-1), STRETCH_SIZE)
        values = (stretch.to("cpu", torch.float32).numpy() for stretch in stretches)
        digest.add(name, tensor.shape, values)
    return digest.result()


def _base_of(
    model: nn.Module, base: nn.Module | Mapping[str, Tensor], exclude: tuple[str, ...]
) -> Mapping[str, Tensor]:
    """The base's tensors by name, without buffers and second names of tied parameters."""
    if isinstance(base, nn.Module):
        return _without(plain(parameters_of(base)), exclude)
    if not isinstance(base, Mapping):
        raise InvalidParameter(
            f"base must be a model or a state dict, not a {type(base).__name__}", field="base"
        )
    parameters = plain(parameters_of(model))
    others = set(plain(model.state_dict())) - set(parameters)  # buffers, second names of tied ones
    return _without({n: t for n, t in plain(base).items() if n not in others}, exclude)


def _without(tensors: Mapping[str, Tensor], exclude: tuple[str, ...]) -> Mapping[str, Tensor]:
    if not exclude:
        return tensors
    return {
        name: tensor
        for name, tensor in tensors.items()
        if not any(fnmatchcase(name, pattern) for pattern in exclude)
    }


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
