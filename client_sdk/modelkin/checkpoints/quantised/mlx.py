"""MLX: codes in one stream of bits along each row, a scale and a bias for each group of inputs.

Source: ``mlx.core.quantize``: ``weight`` uint32 ``[..., outputs, inputs * bits / 32]``, ``scales``
and ``biases`` ``[..., outputs, inputs / group_size]``; a value is ``scale * code + bias``. Modes
without biases are ``mxfp4``, ``mxfp8`` and ``nvfp4``. The bits, the group and the mode stand in
``quantization`` of ``config.json``, for all modules and for single ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from modelkin.checkpoints.dtypes import FLOATS
from modelkin.checkpoints.quantised.contents import Contents, refuse
from modelkin.checkpoints.quantised.grids import Blocks, Grid, Scaled
from modelkin.checkpoints.quantised.matrices import (
    E2M1,
    E8M0,
    Floats,
    PackedColumns,
    Stored,
    counting_table,
)
from modelkin.checkpoints.quantised.shapes import MAX_DIMENSIONS, require, unfit
from modelkin.checkpoints.quantised.statement import Statement, count_in
from modelkin.checkpoints.quantised.tensor import QuantisedTensor
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.quoting import quote

__all__ = ["find"]

_BITS: Final = (2, 3, 4, 5, 6, 8)


@dataclass(frozen=True, slots=True)
class _Mode:
    """A mode without biases: its bits, its group, what codes count, the type of its scales."""

    bits: int
    group: int
    table: Floats
    scales: str


_MODES: Final = {
    "mxfp4": _Mode(4, 32, E2M1, E8M0),
    "nvfp4": _Mode(4, 16, E2M1, "F8_E4M3"),
    "mxfp8": _Mode(8, 32, FLOATS["F8_E4M3"](np.arange(256, dtype=np.uint8)), E8M0),
}


def find(contents: Contents) -> None:
    """Take the tensors of MLX."""
    for stem, codes in list(contents.ending(".weight")):
        scales = contents.get(f"{stem}.scales")
        if codes.dtype != "U32" or scales is None:
            continue
        biases = contents.get(f"{stem}.biases")
        make = partial(_tensor, stem, codes, scales, biases, contents.statement)
        contents.take(codes.name, (codes, scales, biases), make)


def _tensor(
    stem: str,
    codes: StoredTensor,
    scales: StoredTensor,
    biases: StoredTensor | None,
    statement: Statement,
) -> QuantisedTensor:
    require(codes, ("U32",), range(1, MAX_DIMENSIONS + 1))
    said = statement.fields.get(stem)
    fields: Mapping[str, Any] = said if isinstance(said, dict) else statement.fields
    mode = fields.get("mode", "affine")
    known = _MODES.get(mode) if isinstance(mode, str) else None
    if known is None and (mode != "affine" or biases is None):
        raise refuse(codes, f"MLX's mode {quote(mode)} with these tensors is not read")
    bits, group = count_in(fields, "bits"), count_in(fields, "group_size")
    if known is not None:
        bits, group = bits or known.bits, group or known.group
    if bits not in _BITS or group is None or (known is not None and bits != known.bits):
        raise refuse(
            codes,
            "it is packed as MLX packs, and no config.json beside it says bits and group_size",
            "put the config.json of the model there",
        )
    width = codes.shape[-1] * 32 // bits
    of_groups = (*codes.shape[:-1], -(-width // group))
    for part in (scales, biases):
        if part is not None and (part.shape != of_groups or not width):
            raise unfit(part, codes)
    require(scales, FLOATS if known is None else ("U8", known.scales), range(1, 9))
    columns = Blocks(group)
    table = counting_table(bits) if known is None else known.table
    dtype = None if known is None else known.scales
    grid = Grid(Stored(scales, of_groups[-1], dtype), Blocks(1), columns)
    shift = None
    if known is None and biases is not None:
        require(biases, FLOATS, range(1, 9))
        shift = Grid(Stored(biases, of_groups[-1]), Blocks(1), columns)
    return QuantisedTensor(
        name=codes.name,
        dtype=f"int{bits} MLX" if known is None else f"{mode} MLX",
        shape=(*codes.shape[:-1], width),
        path=codes.path,
        begin=codes.begin,
        width=width,
        values=Scaled(PackedColumns(codes, 4 * codes.shape[-1], bits, table), (grid,), shift=shift),
    )
