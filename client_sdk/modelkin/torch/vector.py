"""Join tensors of all parameters to one importance vector, and check that a model is readable.

All kinds of importance use this module, so that index i means the same parameter in each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from modelkin.core.importance import Importance, Origin, with_origin
from modelkin.errors import InvalidImportance, InvalidParameter
from modelkin.torch.layout import layout_by_name, parameters_of

__all__ = [
    "in_layout_order",
    "is_sharded",
    "join_names",
    "readable_parameters",
    "trainable_of",
    "wide_dtype",
]


def readable_parameters(
    model: nn.Module, *, frozen_too: bool = False, exclude: Iterable[str] = ()
) -> dict[str, nn.Parameter]:
    """The parameters by name in layout order, each of them unsharded and of real numbers.

    Args:
        model: any model.
        frozen_too: whether frozen parameters must be real numbers too. Gradients do not need it, so
            a model may be trained beside quantised weights.
        exclude: patterns of parameters to leave out, as for ``layout_of``.

    Raises:
        InvalidParameter: a parameter is sharded, complex or quantised (names it); a pattern has no
            match.
        InvalidLayout: see ``layout_of``.
    """
    parameters = parameters_of(model, exclude)
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
    """The parameters that require gradients.

    Raises:
        InvalidParameter: no parameter requires gradients.
    """
    trainable = {name: p for name, p in parameters.items() if p.requires_grad}
    if not trainable:
        raise InvalidParameter(
            "every parameter of the model is frozen (requires_grad=False)", field="model"
        )
    return trainable


def is_sharded(tensor: Any) -> bool:
    """Whether a tensor is sharded: a DTensor, or a flat parameter of FSDP."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # without it there are no flat parameters
    return hasattr(tensor, "device_mesh") or (
        fsdp is not None and isinstance(tensor, fsdp.FlatParameter)
    )


def wide_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype to compute in: float64 if a tensor has it, else float32, exact for smaller ones."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


@torch.no_grad()
def in_layout_order(
    parameters: Mapping[str, nn.Parameter],
    piece_of: Callable[[str], Tensor | None],
    what: str,
    remedy: str = "",
    *,
    kind: str,
    base: str | None = None,
) -> Tensor:
    """Concatenate the pieces of all parameters, and attach their kind and layout.

    Args:
        parameters: the model's, in layout order; they decide names, shapes and M.
        piece_of: returns a parameter's piece by its name, of its shape; None for zeros. It is
            called for one parameter after the other, and no piece is kept.
        what: the name of a piece, for the error.
        remedy: the advice of the error.
        kind: the kind of importance, see ``modelkin.core.importance``.
        base: the digest of the base's weights, for a difference.

    Returns:
        float32 of shape ``(M,)`` on the device of the first parameter. ``select_support`` finds
        the kind and the layout attached to it.

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
    return with_origin(vector, Origin(Importance.of(kind, base), layout_by_name(parameters)))


def join_names(names: Iterable[str]) -> str:
    """Join the first names, for an error: ``'a', 'b', 'c' and 4 more``."""
    all_names = [repr(name) for name in names]
    more = len(all_names) - 5
    return ", ".join(all_names[:5]) + (f" and {more} more" if more > 0 else "")
