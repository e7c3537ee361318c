"""From tensors by parameter to one importance in layout order, and what cannot be read at all.

All kinds of importance end here, so that index i means the same parameter in each. Nothing here
knows what a number means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from modelkin.errors import InvalidImportance, InvalidParameter
from modelkin.torch.layout import parameters_of

__all__ = ["in_layout_order", "is_sharded", "listed", "readable_parameters", "trainable_of", "wide"]


def readable_parameters(model: nn.Module, *, frozen_too: bool = False) -> dict[str, nn.Parameter]:
    """The parameters by name in layout order, each of them whole and of real numbers.

    Args:
        model: any.
        frozen_too: whether frozen ones must be real numbers too; their gradients are not, so that a
            model may be trained beside quantised weights.

    Raises:
        InvalidParameter: one is sharded, complex or quantised, and which.
        InvalidLayout: as ``layout_of``.
    """
    parameters = parameters_of(model)
    for name, parameter in parameters.items():
        if is_sharded(parameter):
            raise InvalidParameter(
                f"parameter {name!r} is sharded ({type(parameter).__name__}), and an importance "
                f"needs it whole: gather the model first (DTensor.full_tensor, or FSDP's "
                f"summon_full_params)",
                field="model",
            )
        counts = frozen_too or parameter.requires_grad
        if counts and not parameter.is_floating_point():
            raise InvalidParameter(
                f"parameter {name!r} is {parameter.dtype}: importance needs real floating-point "
                f"parameters; dequantise quantised ones first",
                field="model",
            )
    return parameters


def trainable_of(parameters: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """Those that require gradients.

    Raises:
        InvalidParameter: none does.
    """
    trainable = {name: p for name, p in parameters.items() if p.requires_grad}
    if not trainable:
        raise InvalidParameter(
            "every parameter of the model is frozen (requires_grad=False)", field="model"
        )
    return trainable


def is_sharded(tensor: Any) -> bool:
    """Whether it is a part of something: a DTensor, or a flat parameter of FSDP."""
    return hasattr(tensor, "device_mesh") or bool(getattr(tensor, "_is_flat_param", False))


def wide(*tensors: Tensor) -> torch.dtype:
    """The dtype to compute in: float32, which holds all smaller ones exactly, or float64 where one
    of the tensors has it.
    """
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


@torch.no_grad()
def in_layout_order(
    parameters: Mapping[str, nn.Parameter],
    piece_of: Callable[[str], Tensor | None],
    what: str,
    remedy: str = "",
) -> Tensor:
    """The pieces of all parameters, end to end.

    Args:
        parameters: in layout order.
        piece_of: a parameter's piece by its name, of its shape; None for zeros. It is asked for one
            after the other, and none is kept.
        what: a piece is, for the error.
        remedy: what to do, for the same.

    Returns:
        float32 of shape ``(M,)`` on the device of the first parameter.

    Raises:
        InvalidImportance: a number is NaN, infinite or too large for float32.
    """
    vector = torch.zeros(
        sum(p.numel() for p in parameters.values()),
        dtype=torch.float32,
        device=next(iter(parameters.values())).device,
    )
    start = 0
    for name, parameter in parameters.items():
        end, piece = start + parameter.numel(), piece_of(name)
        if piece is not None:
            vector[start:end].copy_(piece.reshape(-1))
            if not bool(torch.isfinite(vector[start:end]).all()):
                raise InvalidImportance(
                    f"the {what} of {name!r} is NaN, infinite or beyond float32{remedy}",
                    field="model",
                )
        start = end
    return vector


def listed(names: Iterable[str]) -> str:
    """The first names, for an error: ``'a', 'b', 'c' and 4 more``."""
    all_names = [repr(name) for name in names]
    more = len(all_names) - 5
    return ", ".join(all_names[:5]) + (f" and {more} more" if more > 0 else "")
