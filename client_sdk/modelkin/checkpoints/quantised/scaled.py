"""Floats and integers of 8 bits with scales in another tensor, under any published name.

Sources: DeepSeek-V3's ``weight_scale_inv``, a float for each block of 128 by 128, which multiplies
in spite of its name; ``weight_scale`` of compressed-tensors, ModelOpt and FBGEMM, for a tensor, a
row or a block; ``scale_weight`` of ComfyUI; ``qscale_weight`` of Mistral; ``scale`` of DeepSeek's
own code; ``SCB`` of bitsandbytes, the greatest magnitude of each row, which 127 stands for.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import numpy as np

from modelkin.checkpoints.dtypes import FLOATS
from modelkin.checkpoints.quantised.contents import Contents, refuse
from modelkin.checkpoints.quantised.grids import Grid, Scaled
from modelkin.checkpoints.quantised.matrices import E8M0, Floats, Mapped, Stored
from modelkin.checkpoints.quantised.shapes import grid_over, unfit
from modelkin.checkpoints.quantised.statement import Statement, count_in
from modelkin.checkpoints.quantised.tensor import QuantisedTensor
from modelkin.checkpoints.tensors import StoredTensor

__all__ = ["find", "find_scb", "scale_of", "stated_blocks"]

_SUFFIXES: Final = ("_scale_inv", "_scale", "_weight_scale")
"""The ends of the names of scales, after that of the tensor: the last is of stacks of experts."""
_SIBLINGS: Final = ("scale_weight", "qscale_weight", "weight_scale", "scale_inv", "scale")
"""The names of scales of ``weight`` in the same module."""
_ZERO: Final = "_zero_point"
_FLOATS: Final = tuple(name for name in FLOATS if name.startswith("F8"))


def find(contents: Contents) -> None:
    """Take floats and integers of 8 bits with scales."""
    for name, codes in list(contents.tensors.items()):
        if name in contents.taken or codes.dtype not in (*_FLOATS, "I8"):
            continue
        scale = scale_of(contents, name)
        if scale is None or (codes.dtype == "I8" and scale.dtype == E8M0):
            continue
        zero = contents.get(name + _ZERO)
        make = partial(_tensor, name, codes, scale, zero, contents.statement)
        contents.take(name, (codes, scale, zero), make)


def find_scb(contents: Contents) -> None:
    """Take the tensors of bitsandbytes' LLM.int8()."""
    for stem, scale in list(contents.ending(".SCB")):
        codes = contents.get(f"{stem}.weight")
        if codes is None or codes.dtype != "I8":
            continue
        aside = (contents.get(f"{stem}.weight_format"),)
        contents.take(codes.name, (codes, scale), partial(_of_scb, codes, scale), aside)


def scale_of(contents: Contents, name: str) -> StoredTensor | None:
    """The scale of a tensor, by its name."""
    own = contents.get(*(name + suffix for suffix in _SUFFIXES))
    stem, _, last = name.rpartition(".")
    if own is not None or last != "weight":
        return own
    dot = f"{stem}." if stem else ""
    return contents.get(*(dot + sibling for sibling in _SIBLINGS))


def stated_blocks(statement: Statement) -> tuple[int | None, int | None]:
    """The rows and columns of a block, as a configuration states them."""
    for fields in (statement.fields, *_weights(statement)):
        for name in ("weight_block_size", "block_structure"):
            block = fields.get(name)
            if isinstance(block, list) and len(block) == 2:
                pair = {"rows": block[0], "columns": block[1]}
                return count_in(pair, "rows"), count_in(pair, "columns")
        if (size := count_in(fields, "group_size")) is not None:
            return None, size
    return None, None


def _weights(statement: Statement) -> Iterable[dict[str, Any]]:
    """What compressed-tensors says of the weights of each group of modules."""
    groups = statement.fields.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict):
            yield weights


def _tensor(
    name: str,
    codes: StoredTensor,
    scale: StoredTensor,
    zero: StoredTensor | None,
    statement: Statement,
) -> QuantisedTensor:
    floats = codes.dtype in _FLOATS
    dtype = E8M0 if scale.dtype == "U8" else None
    if dtype is None and scale.dtype not in (*FLOATS, E8M0):
        raise refuse(scale, f"it is {scale.dtype}, and scales are floats")
    stated = stated_blocks(statement)
    width, grid = grid_over(codes.shape, scale, codes, stated, dtype)
    zeros = None
    if zero is not None:
        if zero.dtype not in (codes.dtype, *FLOATS) or zero.shape != scale.shape:
            raise unfit(zero, scale)
        zeros = Grid(Stored(zero, _across(grid)), grid.rows, grid.columns)
    kind = codes.dtype if floats else "int8"
    return QuantisedTensor(
        name=name,
        dtype=f"{kind} with scales",
        shape=codes.shape,
        path=codes.path,
        begin=codes.begin,
        width=width,
        values=Scaled(Stored(codes, width), (grid,), zeros),
    )


def _across(grid: Grid) -> int:
    assert isinstance(grid.source, Stored)
    return grid.source.width


def _share_of_127(scales: Floats) -> Floats:
    return scales / np.float32(127)


def _of_scb(codes: StoredTensor, scale: StoredTensor) -> QuantisedTensor:
    if len(codes.shape) != 2 or scale.dtype not in FLOATS or scale.shape != codes.shape[:1]:
        raise unfit(scale, codes)
    width, grid = grid_over(codes.shape, scale, codes)
    shares = Grid(Mapped(grid.source, _share_of_127), grid.rows, grid.columns)
    return QuantisedTensor(
        name=codes.name,
        dtype="int8 bitsandbytes",
        shape=codes.shape,
        path=codes.path,
        begin=codes.begin,
        width=width,
        values=Scaled(Stored(codes, width), (shares,)),
    )
