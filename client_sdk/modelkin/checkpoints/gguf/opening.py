"""``read_gguf``: the tensors of GGUF files, under the names and in the order of Hugging Face."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

from modelkin.checkpoints.gguf.architectures import ARCHITECTURES, Architecture
from modelkin.checkpoints.gguf.header import GgufEntry, GgufHeader, Value, read_gguf_header
from modelkin.checkpoints.gguf.names import EXPERT, hf_name
from modelkin.checkpoints.gguf.tensors import MAX_TILE, GgufTensor, RowOrder
from modelkin.checkpoints.header import CheckpointLimits, bad_checkpoint
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.quoting import quote

__all__ = ["read_gguf", "tensors_of"]

_ROPE: Final = re.compile(r"(?:.*\.)?rope_(?:freqs|factors_long|factors_short)\.weight")
"""Tables that the converters compute from a configuration: no training changes them."""
_QUERIES: Final = re.compile(r"blk\.([0-9]{1,9})\.attn_(q|k|qkv)\.(?:weight|bias)")
_LEAST_HALF: Final = 8
"""Rows of half a head, of which real ones have 16 and more: single rows are slow to read."""
_MAX_TENSORS: Final = 1 << 17
"""Tensors of a checkpoint, where each expert has its own."""
_NO_WEIGHTS: Final = {
    "imatrix": "an importance matrix, which llama.cpp quantises by",
    "adapter": "a LoRA adapter in llama.cpp's form: give the adapter that PEFT saved",
    "controlvector": "a control vector",
}
"""Files that hold no model, by their ``general.type`` or their architecture."""


@dataclass(frozen=True, slots=True)
class _Model:
    """What the header of a model's first file says of how its tensors are written."""

    name: str
    header: GgufHeader
    where: str

    @property
    def form(self) -> Architecture:
        return ARCHITECTURES.get(self.name, Architecture())

    def heads(self, block: int, kind: str) -> int:
        """The heads of a layer; ``kind`` is ``head_count`` or ``head_count_kv``."""
        key = f"{self.name}.attention.{kind}"
        found: Value | None = self.header.metadata.get(key)
        if found is None and kind == "head_count_kv":
            return self.heads(block, "head_count")
        if isinstance(found, tuple):
            found = found[block] if block < len(found) else None
        if not isinstance(found, int) or found < 1:
            has = (
                f"no {key}"
                if key not in self.header.metadata
                else f"a {key} that is no number of heads"
            )
            raise bad_checkpoint(
                self.where, f"it has {has}, which says in which order its rows of q and k are"
            )
        return found


def read_gguf(
    files: Iterable[Path], limits: CheckpointLimits | None = None
) -> tuple[list[StoredTensor], tuple[str, ...]]:
    """The tensors of a model's files, and remarks on how they were read.

    Args:
        files: one file, or all of a split one in order.
        limits: on their tensors; None for those of the format alone.

    Raises:
        InvalidCheckpoint: not GGUF, damaged, incomplete, of a type that is not read, or no weights;
            more than ``limits`` allow.
        MissingExtra: the package ``gguf`` is not installed.
        OSError: a file cannot be read.
    """
    paths = list(files)
    return tensors_of([(path, read_gguf_header(path, limits)) for path in paths], limits)


def tensors_of(
    files: Sequence[tuple[Path, GgufHeader]], limits: CheckpointLimits | None = None
) -> tuple[list[StoredTensor], tuple[str, ...]]:
    """The tensors that headers declare, and remarks; see :func:`read_gguf`."""
    _check_splits(files)
    model = _model_of(files[0][1], files[0][0].name)
    if not any(header.tensors for _, header in files):
        raise bad_checkpoint(model.where, "it has no tensor, as a file of a vocabulary alone has")
    most = _MAX_TENSORS if limits is None else min(limits.tensors, _MAX_TENSORS)
    found: dict[str, StoredTensor] = {}
    kept: list[str] = []
    tables: list[str] = []
    for path, header in files:
        for entry in header.tensors:
            if _ROPE.fullmatch(entry.name):
                tables.append(entry.name)
                continue
            name = hf_name(entry.name, model.name)
            if name is None:
                kept.append(entry.name)
            for tensor in _tensors_of(entry, name, path, model, most):
                if tensor.name in found:
                    raise bad_checkpoint(path.name, f"it has tensor {quote(tensor.name)} twice")
                found[tensor.name] = tensor
                if len(found) > most:
                    raise bad_checkpoint(
                        path.name, f"it holds over {most} tensors, the most accepted here"
                    )
    return list(found.values()), tuple(_remarks(model, kept, tables))


def _model_of(header: GgufHeader, where: str) -> _Model:
    name = header.text("general.architecture")
    kind = header.text("general.type")
    for said in (kind, name):
        if said in _NO_WEIGHTS:
            raise bad_checkpoint(where, f"it is {_NO_WEIGHTS[said]}")
    if name is None:
        raise bad_checkpoint(where, "its metadata has no general.architecture")
    return _Model(name, header, where)


def _check_splits(files: Sequence[tuple[Path, GgufHeader]]) -> None:
    """Check that files are those of one split, in order."""
    held = sum(len(header.tensors) for _, header in files)
    for number, (path, header) in enumerate(files):
        count = header.count("split.count") or 1
        if count != len(files) or (count > 1 and header.count("split.no") != number):
            raise bad_checkpoint(
                path.name,
                f"it says that it is part {header.count('split.no')} of {count}, and is read as "
                f"part {number} of {len(files)}: give the first of all parts",
            )
        total = header.count("split.tensors.count")
        if count > 1 and total is not None and total != held:
            raise bad_checkpoint(
                path.name, f"its parts have {held} tensors, and it says {total}: one is another's"
            )


def _tensors_of(
    entry: GgufEntry, name: str | None, path: Path, model: _Model, most: int
) -> Iterator[StoredTensor]:
    """Yield the tensor, or the tensors of its experts, as Hugging Face's files have them."""
    if name is None or EXPERT not in name:
        yield _tensor(entry, name, path, model)
        return
    experts = entry.shape[0] if len(entry.shape) > 1 else 0
    if experts == 0 or experts > most:
        raise bad_checkpoint(
            path.name,
            f"tensor {quote(entry.name)} of shape {list(entry.shape)} holds no stack of experts",
        )
    length = (entry.end - entry.begin) // experts
    for expert in range(experts):
        begin = entry.begin + expert * length
        one = GgufEntry(entry.name, entry.kind, entry.shape[1:], begin, begin + length)
        yield _tensor(one, name.replace(EXPERT, str(expert)), path, model)


def _tensor(entry: GgufEntry, name: str | None, path: Path, model: _Model) -> StoredTensor:
    kind, shape = entry.kind, entry.shape
    if name is None:
        order, shift, transposed = None, 0.0, False
    else:
        order = _order(entry, model)
        shift = 1.0 if entry.name.endswith(model.form.shifted) and kind.values else 0.0
        transposed = entry.name.endswith(model.form.transposed) and len(shape) == 2
    changed = order is not None or shift or transposed
    name = entry.name if name is None else name
    if not (kind.is_quantised or changed):
        return StoredTensor(name, kind.name, shape, path, entry.begin)
    rows = shape[0] if len(shape) > 1 or order is not None else 1
    width = (entry.end - entry.begin) // max(rows, 1)
    if transposed and rows * kind.block_size > MAX_TILE:
        raise bad_checkpoint(
            path.name, f"tensor {quote(entry.name)} of {rows} rows is too tall to be transposed"
        )
    blocks = StoredTensor(entry.name, "U8", (rows, width), path, entry.begin)
    if transposed:
        shape = shape[::-1]
    return GgufTensor(
        name, kind.name, shape, path, entry.begin, kind, blocks, order, shift, transposed
    )


def _order(entry: GgufEntry, model: _Model) -> RowOrder | None:
    """The order of the rows of q and k, or of a fused q, k and v; None for any others."""
    found = _QUERIES.fullmatch(entry.name)
    form = model.form
    if found is None or not entry.shape or not (form.grouped if found[2] == "qkv" else form.rotary):
        return None
    block, rows = int(found[1]), entry.shape[0]
    heads = model.heads(block, "head_count_kv" if found[2] == "k" else "head_count")
    parts = heads * (3 if form.grouped else 2)
    if rows % parts or rows // parts < _LEAST_HALF or not prod(entry.shape):
        raise bad_checkpoint(
            model.where,
            f"tensor {quote(entry.name)} has {rows} rows, which are not those of {heads} heads",
        )
    if form.grouped:
        return RowOrder((heads, 3, rows // parts), (1, 0, 2))
    return RowOrder((heads, 2, rows // parts), (0, 2, 1))


def _remarks(model: _Model, kept: list[str], tables: list[str]) -> Iterator[str]:
    """Yield what was not read as the file has it."""
    if model.name not in ARCHITECTURES:
        yield (
            f"tensors keep the names and the order that GGUF gives them, since those of the "
            f"architecture {quote(model.name)} are not known here: its support "
            "compares with those of such files"
        )
    elif len(kept) == 1:
        yield f"1 tensor keeps the name that GGUF gives it: {quote(kept[0])}"
    elif kept:
        yield f"{len(kept)} tensors keep the names that GGUF gives them, such as {quote(kept[0])}"
    if tables:
        yield f"tables of rotary positions are left out, such as {quote(tables[0])}"
