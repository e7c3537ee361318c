"""AWQ: codes of 4 bits packed along the outputs, eight a word in an order of their own.

Source: the layout ``gemm`` of AutoAWQ: ``qweight`` int32 ``[inputs, outputs / 8]``, ``qzeros``
int32 ``[groups, outputs / 8]``, ``scales`` ``[groups, outputs]``. From the lowest bits on, a word
holds outputs 0, 2, 4, 6, 1, 3, 5 and 7.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from modelkin.checkpoints.quantised.contents import Contents, refuse
from modelkin.checkpoints.quantised.grids import Blocks, Grid, Scaled
from modelkin.checkpoints.quantised.matrices import PackedColumns, Stored, counting_table
from modelkin.checkpoints.quantised.shapes import block_size, require, require_floats, unfit
from modelkin.checkpoints.quantised.statement import Statement
from modelkin.checkpoints.quantised.tensor import MAX_TURNED_WIDTH, QuantisedTensor
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.quoting import quote

__all__ = ["find"]

_BITS: Final = 4
_IN_A_WORD: Final = 8
_ORDER: Final = (0, 4, 1, 5, 2, 6, 3, 7)
"""The place in a word of each of eight outputs."""
_METHODS: Final = (None, "awq", "auto-round", "autoround", "intel/auto-round")
_VERSIONS: Final = (None, "gemm")


def find(contents: Contents) -> None:
    """Take the tensors of AWQ."""
    for stem, codes in list(contents.ending(".qweight")):
        scales, zeros = contents.get(f"{stem}.scales"), contents.get(f"{stem}.qzeros")
        if scales is None or zeros is None:
            continue
        make = partial(_tensor, f"{stem}.weight", codes, scales, zeros, contents.statement)
        contents.take(f"{stem}.weight", (codes, scales, zeros), make)


def _tensor(
    name: str,
    codes: StoredTensor,
    scales: StoredTensor,
    zeros: StoredTensor,
    statement: Statement,
) -> QuantisedTensor:
    require(codes, ("I32", "U32"), (2,))
    require(zeros, ("I32", "U32"), (2,))
    require_floats(scales, (2,))
    method, version = statement.method, statement.text("version")
    if method not in _METHODS:
        raise refuse(codes, f"it is packed as AWQ packs, and {statement.file} says {quote(method)}")
    if version not in _VERSIONS or statement.text("backend") == "llm-awq":
        form = quote(version or "llm-awq")
        raise refuse(codes, f"it is packed by AWQ's {form}, and gemm alone is read")
    (inputs, words), (count, outputs) = codes.shape, scales.shape
    size = block_size(inputs, count, statement.count("group_size"))
    if words * _IN_A_WORD != outputs or zeros.shape != (count, words) or size is None:
        raise unfit(codes, scales)
    if inputs > MAX_TURNED_WIDTH:
        raise refuse(codes, f"it packs {inputs} inputs, at most {MAX_TURNED_WIDTH} are read")
    rows, table = Blocks(size), counting_table(_BITS)
    packed_zeros = PackedColumns(zeros, 4 * words, _BITS, table, order=_ORDER)
    values = Scaled(
        PackedColumns(codes, 4 * words, _BITS, table, order=_ORDER, turned=True),
        (Grid(Stored(scales, outputs), rows, Blocks(1), turned=True),),
        Grid(packed_zeros, rows, Blocks(1), turned=True),
    )
    return QuantisedTensor(
        name=name,
        dtype=f"int{_BITS} AWQ",
        shape=(outputs, inputs),
        path=codes.path,
        begin=codes.begin,
        width=inputs,
        values=values,
        turned=True,
    )
