"""Schemes that are not read: known by the names of their tensors, or by what a configuration says.

Each is refused by its name. What nothing names is left to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from modelkin.checkpoints.dtypes import FLOATS
from modelkin.checkpoints.quantised.contents import Contents, Found, refuse
from modelkin.checkpoints.quantised.matrices import E8M0, INTEGERS
from modelkin.checkpoints.quantised.tensor import QuantisedTensor
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.foreign_json import decode_json
from modelkin.core.quoting import quote

__all__ = ["find", "find_comfy", "find_rotated"]

_NAMES: Final = (
    (".W_q", "", "HQQ"),
    (".codes", ".codebooks", "AQLM"),
    (".Qidxs", "", "QuIP#"),
    (".q_weight", "", "EXL2"),
    (".trellis", "", "EXL3"),
    (".qweight", ".weight_scales", "EETQ"),
    (".qweight", ".wscales", "SVDQuant, as Nunchaku packs it"),
    (".indices", ".centroids", "VPTQ"),
    (".dense_weights", "", "SpQR"),
    (".B", ".s", "Marlin"),
    (".weight", ".pre_quant_scale", "ModelOpt after smoothing, which changes what a layer reads"),
    ("._weight_qdata", "", "torchao"),
    ("._data", "", "quanto"),
    (".bitmask", ".compressed", "compressed-tensors' bitmasks of sparse weights"),
    ("", ".quant_map", "bitsandbytes without its description"),
    ("_blocks", "", "MXFP4 without its scales"),
    ("_packed", "", "compressed-tensors in a format of its own, or without its scales"),
    (".qweight", "", "GPTQ, AWQ or the like without its scales and zeros"),
    (".qzeros", "", "GPTQ, AWQ or the like without its codes"),
)
"""The end of the name of packed codes, that of a tensor beside them, and the scheme. The last ones
say little, so that what a configuration says comes first."""

_READ: Final = (
    *("gptq", "awq", "fp8", "fbgemm_fp8", "bitsandbytes", "compressed-tensors", "mxfp4"),
    *("modelopt", "modelopt_fp4", "auto-round", "autoround", "intel/auto-round", "mlx"),
)
"""Methods of a configuration whose tensors are read where they are as published."""
_COMFY: Final = ("float8_e4m3fn", "float8_e5m2", "int8_tensorwise", "int8_blockwise")
"""Formats of ComfyUI whose scales lie as in other schemes."""
_COMFY_FIELDS: Final = frozenset({"format", "group_size", "full_precision_matrix_mult"})
_OF_BLOCKS: Final = (E8M0, "U8", "F8_E4M3")
"""The types of scales that kernels want in an order of their own."""
_MAX_BYTES: Final = 1 << 16
_SHORT: Final = (*(name for name in INTEGERS if not name.endswith("64")), "F4")
_WEIGHT: Final = ".weight"
_BIAS: Final = "bias"
_LEAST_A_SCALE: Final = 16
"""Codes for which a scale counts, or more."""


def find(contents: Contents) -> None:
    """Take what is of a scheme that is not read; making it is the refusal."""
    scales = _scales(contents)
    for name, tensor in list(contents.tensors.items()):
        if name not in contents.taken and (what := _scheme(name, tensor, contents, scales)):
            contents.take(name, (tensor,), _refusal(tensor, what))


def find_comfy(contents: Contents) -> None:
    """Take the tensors of ComfyUI that have a form of their own.

    A tensor beside them says the form, or the metadata of the file.
    """
    for stem, said in list(contents.ending(".comfy_quant")):
        codes = contents.get(f"{stem}.weight")
        if codes is not None and said.dtype == "U8" and said.size <= _MAX_BYTES:
            contents.taken.add(said.name)
            _take_comfy(contents, stem, codes, said.raw(0, said.size).tobytes())
    for stem, codes in list(contents.ending(".weight")):
        scale = contents.get(f"{stem}.weight_scale")
        in_blocks = scale is not None and len(scale.shape) > 1 and scale.dtype in _OF_BLOCKS
        form = contents.layers(codes.path).get(stem) if in_blocks else None
        if form is not None:
            _take_comfy(contents, stem, codes, form)


def find_rotated(contents: Contents) -> None:
    """Refuse what others took, if its values were rotated before they were rounded.

    The rotations of compressed-tensors leave nothing of the original's largest values in place.
    """
    said = contents.statement.fields.get("transform_config")
    if isinstance(said, dict) and said.get("config_groups"):
        for name, found in contents.found.items():
            what = "compressed-tensors after rotations (transform_config)"
            make = _refusal(found.parts[0], what)
            contents.found[name] = Found(name, found.parts, make)


def _take_comfy(contents: Contents, stem: str, codes: StoredTensor, form: bytes) -> None:
    """Take a tensor of ComfyUI, if its scales lie as in no other scheme."""
    what = _of_comfy(form)
    if what is not None:
        scales = (contents.get(f"{stem}.weight_scale"), contents.get(f"{stem}.weight_scale_2"))
        contents.take(codes.name, (codes, *scales), _refusal(codes, what))


def _scales(contents: Contents) -> dict[str, StoredTensor]:
    """A tensor of each module that may scale its weights, and that no family took.

    By its name; or since it is a single float, or is named as a part of the weight.
    """
    found: dict[str, StoredTensor] = {}
    for name, tensor in contents.tensors.items():
        if name in contents.taken or tensor.dtype not in FLOATS:
            continue
        above, _, last = name.rpartition(".")
        module = above.removesuffix(_WEIGHT)
        if "scale" in last:
            found[module] = tensor
        elif tensor.dtype.startswith("F8") or _BIAS in last:
            continue
        elif tensor.size == 1 or module != above:
            found.setdefault(module, tensor)
    found.pop("", None)
    return found


def _scheme(
    name: str, tensor: StoredTensor, contents: Contents, scales: Mapping[str, StoredTensor]
) -> str | None:
    """The scheme of a tensor that no family took, if anything says one."""
    floats = tensor.dtype.startswith("F8")
    if not (floats or tensor.dtype in _SHORT) or tensor.size < _LEAST_A_SCALE:
        return None
    method, file = contents.statement.method, contents.statement.file
    matrix, unknown = len(tensor.shape) > 1, method is not None and method not in _READ
    if matrix and unknown and not floats:
        return f"{quote(method)}, as {file} says"
    for ending, beside, what in _NAMES:
        if name.endswith(ending) and (
            not beside or name[: len(name) - len(ending)] + beside in contents.tensors
        ):
            return what
    module, _, last = name.rpartition(".")
    if not matrix or not last.startswith("weight"):
        return None
    scale = scales.get(module)
    if scale is not None and scale.size * _LEAST_A_SCALE <= tensor.size:
        return f"a scheme whose scales are called {quote(scale.name.removeprefix(f'{module}.'))}"
    if last != "weight":
        return None
    if method is not None:
        return f"{quote(method)}, as {file} says, and has no scales"
    return None if floats else "a scheme that has no scales beside its codes"


def _of_comfy(said: bytes) -> str | None:
    try:
        fields = decode_json(said, dict[str, object])
    except ValueError:
        return "ComfyUI with a damaged description"
    form = fields.get("format")
    if form in _COMFY and not fields.keys() - _COMFY_FIELDS:
        return None
    return f"ComfyUI as {quote(form)}, with scales in the order of its kernels"


def _refusal(tensor: StoredTensor, what: str) -> Callable[[], QuantisedTensor]:
    def make() -> QuantisedTensor:
        raise refuse(tensor, f"it is quantised by {what}, which is not read")

    return make
