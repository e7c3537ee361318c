"""bitsandbytes: codes of 4 bits, nf4 or fp4, in blocks of the flat tensor, a table, and scales.

Source: the tensors that ``QuantState.as_dict(packed=True)`` saves beside ``W``: ``W.absmax``,
``W.quant_map``, and JSON as bytes in ``W.quant_state.bitsandbytes__nf4``. The higher half of a byte
comes first. Nested scales are codes of 8 bits themselves: ``nested_absmax``, ``nested_quant_map``.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Annotated, Final

import msgspec
import numpy as np

from modelkin.checkpoints.dtypes import FLOATS
from modelkin.checkpoints.quantised.contents import Contents, refuse
from modelkin.checkpoints.quantised.grids import Blocks, Grid, Scaled
from modelkin.checkpoints.quantised.matrices import (
    Floats,
    Matrix,
    PackedColumns,
    Stored,
    as_bytes,
)
from modelkin.checkpoints.quantised.shapes import MAX_DIMENSIONS, require, require_floats, unfit
from modelkin.checkpoints.quantised.tensor import QuantisedTensor
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.foreign_json import decode_json
from modelkin.core.quoting import quote

__all__ = ["find"]

_STATE: Final = ".quant_state.bitsandbytes__"
_KINDS: Final = ("nf4", "fp4")
_MAX_STATE_BYTES: Final = 1 << 16

_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]


class _State(msgspec.Struct):
    """What is read of the description."""

    quant_type: str
    blocksize: _Count
    shape: tuple[_Count, ...]
    nested_blocksize: _Count | None = None
    nested_offset: float = 0.0


def find(contents: Contents) -> None:
    """Take the tensors of bitsandbytes' 4 bits."""
    for kind in _KINDS:
        for name, state in list(contents.ending(_STATE + kind)):
            codes, absmax = contents.get(name), contents.get(f"{name}.absmax")
            table = contents.get(f"{name}.quant_map")
            nested = contents.get(f"{name}.nested_absmax")
            nested_table = contents.get(f"{name}.nested_quant_map")
            if codes is None or absmax is None or table is None:
                continue
            parts = (codes, absmax, table, nested, nested_table)
            make = partial(_tensor, *parts, state, kind)
            contents.take(name, (*parts, state), make)


def _tensor(
    codes: StoredTensor,
    absmax: StoredTensor,
    table: StoredTensor,
    nested: StoredTensor | None,
    nested_table: StoredTensor | None,
    state: StoredTensor,
    kind: str,
) -> QuantisedTensor:
    said = _read(state)
    size, packed = prod(said.shape), as_bytes(codes)
    if len(said.shape) > MAX_DIMENSIONS or packed.size != -(-size // 2):
        raise refuse(state, f"its shape is {quote(said.shape)}, which other codes have")
    blocks = -(-size // said.blocksize)
    if absmax.shape != (blocks,):
        raise unfit(absmax, codes)
    scales = _scales(absmax, nested, nested_table, said)
    values = PackedColumns(packed, packed.size, 4, _table(table, 16), high_first=True)
    return QuantisedTensor(
        name=codes.name,
        dtype=f"{kind} bitsandbytes",
        shape=said.shape,
        path=codes.path,
        begin=codes.begin,
        width=max(size, 1),
        values=Scaled(values, (Grid(scales, Blocks(1), Blocks(said.blocksize)),)),
    )


def _read(state: StoredTensor) -> _State:
    require(state, ("U8",), (1,))
    if state.size > _MAX_STATE_BYTES:
        raise refuse(state, f"a description has at most {_MAX_STATE_BYTES} bytes")
    raw = state.raw(0, state.size)
    if not raw.any():
        where = "where a file is known by its header alone"
        raise refuse(state, f"it is empty, as {where}: the shape is not known", "read the file")
    try:
        said = decode_json(raw.tobytes(), _State)
    except ValueError:
        raise refuse(state, "it is no description of bitsandbytes' codes") from None
    if not np.isfinite(np.float32(said.nested_offset)):
        raise refuse(state, "its nested_offset is not finite")
    return said


def _scales(
    absmax: StoredTensor,
    nested: StoredTensor | None,
    nested_table: StoredTensor | None,
    said: _State,
) -> Matrix:
    """The scales of blocks, which may be quantised themselves."""
    if nested is None or nested_table is None or said.nested_blocksize is None:
        require_floats(absmax, (1,))
        return Stored(absmax, absmax.size)
    require(absmax, ("U8",), (1,))
    require_floats(nested, (1,))
    if nested.size != -(-absmax.size // said.nested_blocksize):
        raise unfit(nested, absmax)
    codes = PackedColumns(absmax, absmax.size, 8, _table(nested_table, 256))
    grid = Grid(Stored(nested, nested.size), Blocks(1), Blocks(said.nested_blocksize))
    return Scaled(codes, (grid,), offset=said.nested_offset)


def _table(tensor: StoredTensor, size: int) -> Floats:
    if tensor.dtype not in FLOATS or tensor.shape != (size,):
        raise refuse(tensor, f"it is not the table of {size} codes")
    table: Floats = tensor.part(0, size).astype(np.float32)
    return table
