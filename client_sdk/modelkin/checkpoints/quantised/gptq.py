"""GPTQ: codes packed along the inputs, a scale and a zero for each group of inputs.

Source: the layout of AutoGPTQ and GPTQModel: ``qweight`` int32 ``[inputs * bits / 32, outputs]``,
``qzeros`` int32 ``[groups, outputs * bits / 32]``, ``scales`` ``[groups, outputs]``, ``g_idx``
int32 ``[inputs]``, the group of each input. In the first version a stored zero is one too small. Of
5, 6 and 7 bits, and in the format ``gptq_p``, 32 codes lie in planes.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from modelkin.checkpoints.quantised.contents import Contents, refuse
from modelkin.checkpoints.quantised.grids import Axis, Blocks, Grid, Listed, Scaled
from modelkin.checkpoints.quantised.matrices import (
    PackedColumns,
    PackedRows,
    Stored,
    counting_table,
)
from modelkin.checkpoints.quantised.shapes import block_size, require, require_floats, unfit
from modelkin.checkpoints.quantised.statement import Statement
from modelkin.checkpoints.quantised.tensor import MAX_TURNED_WIDTH, QuantisedTensor
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.quoting import quote

__all__ = ["find"]

_BITS: Final = range(2, 9)
_FORMATS: Final = {None: 1, "gptq": 1, "gptq_v2": 0, "gptq_p": 0}
"""What is added to a stored zero, by ``checkpoint_format``."""
_METHODS: Final = (None, "gptq", "auto-round", "autoround", "intel/auto-round")
_ROUND_FORMATS: Final = ("auto_round:auto_gptq", "auto_gptq")
_CONV1D: Final = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
"""Architectures whose linear layers have the inputs first, as transformers' Conv1D."""
_EMBEDDINGS: Final = ("embed_tokens", "wte", "word_embeddings")


def find(contents: Contents) -> None:
    """Take the tensors of GPTQ."""
    for stem, codes in list(contents.ending(".qweight")):
        scales = contents.get(f"{stem}.scales")
        if scales is None or codes.shape[-1:] != scales.shape[-1:]:
            continue
        zeros, groups = contents.get(f"{stem}.qzeros"), contents.get(f"{stem}.g_idx")
        make = partial(_tensor, stem, codes, scales, zeros, groups, contents.statement)
        contents.take(f"{stem}.weight", (codes, scales, zeros, groups), make)


def _tensor(
    stem: str,
    codes: StoredTensor,
    scales: StoredTensor,
    zeros: StoredTensor | None,
    groups: StoredTensor | None,
    statement: Statement,
) -> QuantisedTensor:
    require(codes, ("I32", "U32"), (2,))
    require_floats(scales, (2,))
    plus = _plus(codes, statement)
    count, outputs = scales.shape
    bits = _bits(codes, zeros, outputs, statement)
    inputs = codes.shape[0] * 32 // bits
    if groups is not None and groups.size:
        require(groups, ("I32",), (1,))
        inputs = groups.size
    if not 0 < count <= inputs or not outputs or -(-inputs * bits // 32) != codes.shape[0]:
        raise unfit(groups or codes, codes)
    if inputs > MAX_TURNED_WIDTH:
        raise refuse(codes, f"it packs {inputs} inputs, at most {MAX_TURNED_WIDTH} are read")
    planes = bits in (5, 6, 7) or (bits == 3 and statement.text("checkpoint_format") == "gptq_p")
    if planes and (codes.shape[0] % bits or (zeros is not None and zeros.shape[-1] % bits)):
        raise unfit(codes, scales)
    rows: Axis
    if groups is not None and groups.size:
        rows = Listed(groups, count)
    else:
        size = block_size(inputs, count, statement.count("group_size"))
        if size is None:
            raise unfit(scales, codes)
        rows = Blocks(size)
    if zeros is None:  # symmetric
        table, zero = counting_table(bits, minus=1 << (bits - 1)), None
    else:
        require(zeros, ("I32", "U32"), (2,))
        if zeros.shape[0] != count:
            raise unfit(zeros, scales)
        table = counting_table(bits)
        of_zeros = counting_table(bits, plus=plus)
        packed = PackedColumns(zeros, 4 * zeros.shape[1], bits, of_zeros, planes=planes)
        zero = Grid(packed, rows, Blocks(1), turned=True)
    natural = statement.model_type in _CONV1D or stem.rpartition(".")[2] in _EMBEDDINGS
    shape = (inputs, outputs) if natural else (outputs, inputs)
    values = Scaled(
        PackedRows(codes, outputs, bits, table, planes=planes),
        (Grid(Stored(scales, outputs), rows, Blocks(1), turned=True),),
        zero,
    )
    return QuantisedTensor(
        name=f"{stem}.weight",
        dtype=f"int{bits} GPTQ",
        shape=shape,
        path=codes.path,
        begin=codes.begin,
        width=shape[1],
        values=values,
        turned=not natural,
    )


def _plus(codes: StoredTensor, statement: Statement) -> int:
    """What is added to each stored zero."""
    method, form = statement.method, statement.text("checkpoint_format")
    packing = statement.text("packing_format") or statement.text("backend") or ""
    if method not in _METHODS:
        said = f"{statement.file} says {quote(method)}"
        raise refuse(codes, f"it is packed as GPTQ packs, and {said}")
    if method not in (None, "gptq") and not packing.startswith(_ROUND_FORMATS):
        raise refuse(codes, f"{quote(method)} packed it as {quote(packing)}, which is not read")
    if form not in _FORMATS:
        raise refuse(codes, f"its checkpoint_format is {quote(form)}, which is not read")
    return _FORMATS[form]


def _bits(
    codes: StoredTensor, zeros: StoredTensor | None, outputs: int, statement: Statement
) -> int:
    """The bits of a code: by the words of the zeros, else by the configuration."""
    stated = statement.count("bits")
    if zeros is not None and len(zeros.shape) == 2:
        fitting = [b for b in _BITS if -(-outputs * b // 32) == zeros.shape[1]]
        if stated is not None and stated in fitting:
            return stated
        if len(fitting) != 1:
            raise unfit(zeros, codes)
        return fitting[0]
    if stated is None or stated not in _BITS:
        raise refuse(codes, "nothing says of how many bits its codes are")
    return stated
