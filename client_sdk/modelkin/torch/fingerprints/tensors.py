"""The tensors of a model that have lines: those of floats, as a state dict names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from modelkin.core.layout import Layout
from modelkin.core.quoting import quote
from modelkin.errors import InvalidParameter
from modelkin.torch.layout import plain
from modelkin.torch.vector import is_sharded

__all__ = ["Model", "floats_of"]

Model = nn.Module | Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]
"""A model, its state dict, or pairs of names and tensors."""

_EIGHT_BITS: Final = {
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
}
_READABLE: Final = {torch.float64, torch.float32, torch.float16, torch.bfloat16, *_EIGHT_BITS}
_MAX_INTEGER_SHARE: Final = 0.1
"""Of all bytes, as for files."""


def floats_of(model: Model, exclude: Iterable[str] = ()) -> dict[str, Tensor]:
    """The tensors of floats by their names, which ascend as those of a checkpoint do.

    Args:
        model: what has the tensors; names lose the marks of what wraps a model.
        exclude: shell patterns of names to leave out.

    Raises:
        InvalidParameter: as for ``modelkin.torch.fingerprint``.
    """
    tensors = _without(plain(_tensors_of(model)), exclude)
    for name, tensor in tensors.items():
        _require_readable(name, tensor)
    floats = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    if not any(tensor.numel() for tensor in floats.values()):
        raise InvalidParameter("the model has no tensor of floats", field="model")
    _refuse_codes(tensors, floats)
    return {name: floats[name].detach() for name in sorted(floats)}


def _tensors_of(model: Model) -> dict[str, Tensor]:
    if isinstance(model, nn.Module):
        for name, parameter in model.named_parameters():
            _require_readable(name, parameter)  # before a state dict gathers shards
        model = model.state_dict()
    pairs = model.items() if isinstance(model, Mapping) else model
    try:
        return {name: each for name, each in pairs if isinstance(each, Tensor)}
    except (TypeError, ValueError):
        raise InvalidParameter(
            f"model must be a model, a state dict, or pairs of names and tensors, not a "
            f"{type(model).__name__}; modelkin.checkpoints.fingerprint takes files",
            field="model",
        ) from None


def _without(tensors: dict[str, Tensor], exclude: Iterable[str]) -> dict[str, Tensor]:
    if isinstance(exclude, str):
        raise InvalidParameter("exclude is one string; give a list of patterns", field="exclude")
    patterns = tuple(exclude)
    if not patterns or not tensors:
        return tensors
    layout = Layout.of((name, tuple(tensor.shape)) for name, tensor in tensors.items())
    return {each.name: tensors[each.name] for each in layout.without(patterns).tensors}


def _require_readable(name: str, tensor: Tensor) -> None:
    """Refuse a tensor whose values are elsewhere, or are none of weights."""
    if is_sharded(tensor):
        problem = (
            f"sharded ({type(tensor).__name__}): gather the model first (DTensor.full_tensor, or "
            f"FSDP's summon_full_params)"
        )
    elif isinstance(tensor, UninitializedParameter):
        problem = "without a shape yet: run one batch through the model first"
    elif tensor.is_meta:
        problem = "without data (meta): load the weights first"
    elif tensor.layout != torch.strided:
        problem = f"of layout {tensor.layout}: make it dense (to_dense())"
    elif tensor.is_quantized or type(tensor.detach()) is not Tensor:
        problem = f"a {type(tensor).__name__} of {tensor.dtype}: dequantise it first"
    elif tensor.is_complex() or (tensor.is_floating_point() and tensor.dtype not in _READABLE):
        problem = f"{tensor.dtype}, which are no weights: exclude it, or dequantise it first"
    else:
        return
    raise InvalidParameter(f"tensor {quote(name)} is {problem}", field="model")


def _refuse_codes(tensors: Mapping[str, Tensor], floats: Mapping[str, Tensor]) -> None:
    """Refuse what looks like the codes of quantised weights, whose scales are other tensors."""
    scaled = {name.rpartition(".")[0] for name in tensors if "scale" in name.rpartition(".")[2]}
    for name, tensor in floats.items():
        if tensor.dtype in _EIGHT_BITS and name.rpartition(".")[0] in scaled:
            raise InvalidParameter(
                f"tensor {quote(name)} is {tensor.dtype} with scales beside it: dequantise it "
                f"first",
                field="model",
            )
    packed = {n: t for n, t in tensors.items() if n not in floats and not _is_list_of_indices(t)}
    size = sum(tensor.nbytes for tensor in packed.values())
    if size > _MAX_INTEGER_SHARE * (size + sum(tensor.nbytes for tensor in floats.values())):
        largest = max(packed, key=lambda name: packed[name].nbytes)
        raise InvalidParameter(
            f"tensor {quote(largest)} is {packed[largest].dtype}, and much of the model is of "
            f"integers: it looks quantised; dequantise it first, or exclude what is no weight",
            field="model",
        )


def _is_list_of_indices(tensor: Tensor) -> bool:
    """Whether it numbers positions, tokens or rows, or is a mask; codes have fewer bits."""
    return tensor.dtype == torch.bool or (tensor.dtype == torch.int64 and tensor.dim() < 2)
