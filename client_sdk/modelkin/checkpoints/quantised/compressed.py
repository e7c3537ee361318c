"""compressed-tensors' ``pack-quantized``: codes in one stream of bits along each row.

Source: its packed format: ``weight_packed`` int32 ``[outputs, inputs * bits / 32]``,
``weight_scale``, ``weight_shape``, and for asymmetric ones ``weight_zero_point``, packed along the
outputs. Codes are signed, stored with half their range added. ``weight_g_idx`` names the group of
each input, or is -1. Its other formats are those of :mod:`.scaled` and :mod:`.fours`.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from modelkin.checkpoints.dtypes import FLOATS
from modelkin.checkpoints.quantised.contents import Contents, refuse
from modelkin.checkpoints.quantised.grids import Axis, Grid, Listed, Scaled
from modelkin.checkpoints.quantised.matrices import (
    PackedColumns,
    PackedRows,
    Stored,
    counting_table,
)
from modelkin.checkpoints.quantised.scaled import stated_blocks
from modelkin.checkpoints.quantised.shapes import MAX_DIMENSIONS, grid_over, require, unfit
from modelkin.checkpoints.quantised.statement import Statement
from modelkin.checkpoints.quantised.tensor import QuantisedTensor
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.quoting import quote

__all__ = ["find"]

_BITS: Final = range(1, 9)


def find(contents: Contents) -> None:
    """Take the tensors of ``pack-quantized``."""
    for name, codes in list(contents.ending("_packed")):
        scale, shape = contents.get(f"{name}_scale"), contents.get(f"{name}_shape")
        if codes.dtype != "I32" or scale is None or shape is None:
            continue
        zero, groups = contents.get(f"{name}_zero_point"), contents.get(f"{name}_g_idx")
        parts = (codes, scale, shape, zero, groups)
        contents.take(name, parts, partial(_tensor, name, *parts, contents.statement))


def _tensor(
    name: str,
    codes: StoredTensor,
    scale: StoredTensor,
    stated_shape: StoredTensor,
    zero: StoredTensor | None,
    groups: StoredTensor | None,
    statement: Statement,
) -> QuantisedTensor:
    require(codes, ("I32",), range(2, MAX_DIMENSIONS + 1))
    require(scale, FLOATS, range(MAX_DIMENSIONS + 1))
    shape = _shape(stated_shape, codes)
    bits = _bits(codes, shape[-1], statement)
    width, grid = _grid(shape, scale, groups, codes, statement)
    half = 1 << (bits - 1)
    offset = 0 if zero is not None else half
    packed = PackedColumns(codes, 4 * codes.shape[-1], bits, counting_table(bits, minus=offset))
    zeros = None if zero is None else _zeros(zero, scale, grid, shape, bits)
    return QuantisedTensor(
        name=name,
        dtype=f"int{bits} compressed-tensors",
        shape=shape,
        path=codes.path,
        begin=codes.begin,
        width=width,
        values=Scaled(packed, (grid,), zeros),
    )


def _shape(stated: StoredTensor, codes: StoredTensor) -> tuple[int, ...]:
    require(stated, ("I64", "I32"), (1,))
    if stated.size != len(codes.shape):
        raise unfit(stated, codes)
    kind = "<i8" if stated.dtype == "I64" else "<i4"
    shape = tuple(int(each) for each in stated.raw(0, stated.size).view(kind))
    if min(shape) < 1 or shape[:-1] != codes.shape[:-1]:
        raise refuse(stated, f"it says {quote(shape)}, which other codes have")
    return shape


def _bits(codes: StoredTensor, columns: int, statement: Statement) -> int:
    """The bits of a code, by the words of a row; a configuration decides between several."""
    fitting = [bits for bits in _BITS if -(-columns * bits // 32) == codes.shape[-1]]
    if len(fitting) > 1:
        groups = statement.fields.get("config_groups")
        stated = [
            weights.get("num_bits")
            for group in (groups.values() if isinstance(groups, dict) else ())
            if isinstance(group, dict) and isinstance(weights := group.get("weights"), dict)
        ]
        fitting = [bits for bits in fitting if bits in stated]
    if len(fitting) != 1:
        raise refuse(codes, f"nothing says of how many bits its {columns} codes a row are")
    return fitting[0]


def _grid(
    shape: tuple[int, ...],
    scale: StoredTensor,
    groups: StoredTensor | None,
    codes: StoredTensor,
    statement: Statement,
) -> tuple[int, Grid]:
    stated = stated_blocks(statement)
    width, grid = grid_over(shape, scale, codes, stated, merge=False)
    if groups is None:
        return width, grid
    require(groups, ("I32",), (1,))
    if groups.size != width:
        raise unfit(groups, codes)
    if groups.raw(0, 1).view("<i4")[0] == -1:  # in the order of the inputs
        return width, grid
    count = scale.shape[-1] if scale.shape else 1
    columns: Axis = Listed(groups, count)
    return width, Grid(grid.source, grid.rows, columns)


def _zeros(
    zero: StoredTensor, scale: StoredTensor, grid: Grid, shape: tuple[int, ...], bits: int
) -> Grid:
    """The zeros, which lie as the scales do, packed along their rows or plain."""
    if zero.dtype == "I8" and zero.shape == scale.shape:
        half = float(1 << (bits - 1))
        plain = Stored(zero, scale.shape[-1] if scale.shape else 1)
        return Grid(Scaled(plain, (), offset=half), grid.rows, grid.columns)
    require(zero, ("I32",), (2,))
    rows = prod(scale.shape[:1])
    if len(shape) != 2 or len(scale.shape) != 2 or scale.shape[0] != shape[0]:
        raise unfit(zero, scale)
    if zero.shape != (-(-rows * bits // 32), scale.shape[1]):
        raise unfit(zero, scale)
    packed = PackedRows(zero, scale.shape[1], bits, counting_table(bits))
    return Grid(packed, grid.rows, grid.columns)
