"""Floats of 4 bits, E2M1, in blocks with scales: MXFP4 and NVFP4.

Sources: OCP Microscaling Formats 1.0 (blocks of 32, scales that are powers of two); NVFP4 (blocks
of 16, scales of E4M3, and one float for the tensor). ModelOpt calls the packed bytes ``weight`` and
the tensor's scale ``weight_scale_2``, which multiplies; compressed-tensors calls them
``weight_packed`` and ``weight_global_scale``, which divides. gpt-oss has ``_blocks`` ``[experts,
outputs, blocks, 16]`` and ``_scales``, of tensors whose inputs come first. Where ModelOpt quantises
stacks of experts of that order, it packs along the second dimension. The lower half of a byte comes
first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Final

import numpy as np

from modelkin.checkpoints.dtypes import FLOATS
from modelkin.checkpoints.quantised.contents import Contents, refuse
from modelkin.checkpoints.quantised.grids import Grid, Scaled
from modelkin.checkpoints.quantised.matrices import E2M1, E8M0, Mapped, PackedColumns, PackedRows
from modelkin.checkpoints.quantised.scaled import scale_of
from modelkin.checkpoints.quantised.shapes import grid_over, require, unfit
from modelkin.checkpoints.quantised.tensor import MAX_TURNED_WIDTH, QuantisedTensor
from modelkin.checkpoints.tensors import StoredTensor

__all__ = ["find", "find_blocks", "find_packed"]

_CODES: Final = ("U8", "I8", "F4")
_POWERS: Final = (E8M0, "U8")
_NV_SCALES: Final = "F8_E4M3"
_MX_BLOCK, _NV_BLOCK = 32, 16
_MIN_MATRIX: Final = 1 << 10
_MAX_SMALL: Final = 1 << 10
"""The most matrices of a stack that are smaller than that: each costs a read."""


def find(contents: Contents) -> None:
    """Take tensors whose packed bytes have the tensor's own name."""
    for name, codes in list(contents.tensors.items()):
        if name in contents.taken or codes.dtype not in _CODES:
            continue
        scale = scale_of(contents, name)
        if scale is None or not _is_scale(codes, scale):
            continue
        second = contents.get(f"{name}_scale_2", f"{name}_weight_scale_2")
        make = partial(_tensor, name, codes, scale, second, inverse=False)
        contents.take(name, (codes, scale, second), make)


def find_packed(contents: Contents) -> None:
    """Take the tensors of compressed-tensors."""
    for name, codes in list(contents.ending("_packed")):
        scale = contents.get(f"{name}_scale")
        if codes.dtype not in _CODES or scale is None or not _is_scale(codes, scale):
            continue
        overall = contents.get(f"{name}_global_scale")
        make = partial(_tensor, name, codes, scale, overall, inverse=True)
        contents.take(name, (codes, scale, overall), make)


def find_blocks(contents: Contents) -> None:
    """Take the tensors of gpt-oss."""
    for name, codes in list(contents.ending("_blocks")):
        scales = contents.get(f"{name}_scales")
        if codes.dtype == "U8" and scales is not None:
            contents.take(name, (codes, scales), partial(_of_blocks, name, codes, scales))


def _is_scale(codes: StoredTensor, scale: StoredTensor) -> bool:
    """Whether the numbers of values and scales are those of a format of 4 bits."""
    size = prod(codes.shape) * (1 if codes.dtype == "F4" else 2)
    block = _NV_BLOCK if scale.dtype == _NV_SCALES else _MX_BLOCK
    return scale.dtype in (*_POWERS, _NV_SCALES) and size == prod(scale.shape) * block


def _tensor(
    name: str,
    codes: StoredTensor,
    scale: StoredTensor,
    overall: StoredTensor | None,
    *,
    inverse: bool,
) -> QuantisedTensor:
    nv = scale.dtype == _NV_SCALES
    if not codes.shape or (nv and overall is None) or (overall is not None and not nv):
        raise refuse(codes, f"its scales are {scale.dtype}, and the scale of the tensor is missing")
    packed = 1 if codes.dtype == "F4" else 2
    block = _NV_BLOCK if nv else _MX_BLOCK
    along = -2 if packed == 2 and _inputs_first(codes, scale) else -1
    shape, of_blocks = [*codes.shape], [*codes.shape]
    shape[along] *= packed
    of_blocks[along] = shape[along] // block
    if scale.shape != tuple(of_blocks) or shape[along] % block:
        raise unfit(scale, codes)
    dtype, stated = (None if nv else E8M0), ((block, 1) if along == -2 else (1, block))
    width, grid = grid_over(tuple(shape), scale, codes, stated, dtype, merge=False)
    scales = [grid]
    if overall is not None:
        scales.append(_overall(tuple(shape), overall, codes, inverse=inverse))
    kind = "NVFP4" if nv else "MXFP4"
    packed_rows = PackedRows(codes, width, 4, E2M1)
    packed_columns = PackedColumns(codes, width // 2, 4, E2M1)
    return QuantisedTensor(
        name=name,
        dtype=kind,
        shape=tuple(shape),
        path=codes.path,
        begin=codes.begin,
        width=width,
        values=Scaled(packed_rows if along == -2 else packed_columns, tuple(scales)),
    )


def _inputs_first(codes: StoredTensor, scale: StoredTensor) -> bool:
    """Whether a stack of matrices is packed along its second dimension."""
    return len(codes.shape) == 3 and codes.shape[-1:] == scale.shape[-1:]


def _overall(
    shape: tuple[int, ...], overall: StoredTensor, codes: StoredTensor, *, inverse: bool
) -> Grid:
    """The scale of a whole tensor, or of each matrix of a stack."""
    if overall.dtype not in FLOATS:
        raise unfit(overall, codes)
    _, grid = grid_over(shape, overall, codes, merge=False)
    if not inverse:
        return grid
    return Grid(Mapped(grid.source, np.reciprocal), grid.rows, grid.columns)


def _of_blocks(name: str, codes: StoredTensor, scales: StoredTensor) -> QuantisedTensor:
    require(codes, ("U8",), (4,))
    require(scales, _POWERS, (3,))
    experts, outputs, blocks, size = codes.shape
    inputs = blocks * _MX_BLOCK
    if size != _MX_BLOCK // 2 or scales.shape != codes.shape[:-1]:
        raise unfit(scales, codes)
    small = experts > _MAX_SMALL and outputs * inputs < _MIN_MATRIX
    if outputs > MAX_TURNED_WIDTH or small:
        raise refuse(codes, f"a stack of {experts} matrices of {outputs} rows is not read")
    stored = (experts, outputs, inputs)
    _, grid = grid_over(stored, scales, codes, (1, _MX_BLOCK), E8M0, merge=False)
    return QuantisedTensor(
        name=name,
        dtype="MXFP4",
        shape=(experts, inputs, outputs),
        path=codes.path,
        begin=codes.begin,
        width=outputs,
        values=Scaled(
            PackedColumns(codes, inputs // 2, 4, E2M1, turned=True), (replace(grid, turned=True),)
        ),
        turned=True,
    )
