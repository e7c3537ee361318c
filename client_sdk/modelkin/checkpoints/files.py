"""A checkpoint on disk: one file, or shards and the index that names them, as one list of tensors.

It never keeps a file open, and maps no tensor: mapped pages would count as memory in use.
"""

from __future__ import annotations

import fnmatch
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import Final, TypeAlias

from modelkin.checkpoints.dtypes import FLOATS, UNREADABLE
from modelkin.checkpoints.gguf import GGUF_SUFFIX, read_gguf
from modelkin.checkpoints.header import (
    CheckpointLimits,
    TensorEntry,
    bad_checkpoint,
    header_length,
    read_header,
)
from modelkin.checkpoints.indexes import owners_of
from modelkin.checkpoints.locating import Located, locate
from modelkin.checkpoints.pieces import pieces
from modelkin.checkpoints.tensors import ComputedTensor, OpenFile, StoredTensor
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.core.quoting import quote

__all__ = ["Checkpoint", "Stored", "checkpoint_of", "floats_of", "matching", "read_tensors"]

Remarks: TypeAlias = tuple[str, ...]

_MAX_INTEGER_SHARE: Final = 0.1
"""The share of integer bytes above which a checkpoint counts as quantised: position ids and masks
stay below it, packed weights do not."""


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint in the order of its parameters: by name, or as :meth:`in_order`.

    Attributes:
        path: the opened path.
        tensors: the parameters: tensors of floats. Buffers of floats are among them: a file does
            not distinguish them. Tied tensors occur once, where the file has them.
        skipped: tensors of integers and booleans, which have no gradient and no importance.
        excluded: names left out on request.
        remarks: notes on how its files were chosen and read, and its tensors fitted to a layout.
        stored: the tensors of floats as the files have them, with those left out, sorted by name:
            of an adapter its factors. Exact copies are found by them.
    """

    path: Path
    tensors: tuple[StoredTensor, ...]
    skipped: tuple[StoredTensor, ...]
    excluded: tuple[str, ...]
    remarks: tuple[str, ...] = field(default=(), kw_only=True)
    stored: tuple[StoredTensor, ...] = field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        """The name of the file or folder that was given, also for ``.``; no link is followed."""
        return Path(os.path.abspath(self.path)).name

    @property
    def kind(self) -> str:
        """The kind of importance that its values have by themselves, without a base."""
        return "weight"

    @cached_property
    def layout(self) -> Layout:
        """Names and shapes, in order."""
        return Layout.of((tensor.name, tensor.shape) for tensor in self.tensors)

    def in_order(self, layout: Layout) -> Checkpoint:
        """The checkpoint with its tensors in the order of a layout of the same tensors.

        They keep their names, where the layout has other ones that mean the same. Tensors that no
        network trains, and second copies of a tied one, are left out where the layout lacks them.

        Raises:
            SpaceMismatch: the tensors differ; names those that do.
        """
        if self.layout.digest == layout.digest:
            return self
        correspond(self.layout, layout).require_equal("the file", "the layout")
        return self.fitted(layout)

    def fitted(self, layout: Layout) -> Checkpoint:
        """The tensors, or parts of them, that a layout has, in its order, with a remark on others.

        Supports of the result are ``reordered`` to the layout, and have gaps where it lacks a part.

        Raises:
            SpaceMismatch: it has too little of the layout; names the tensors that differ.
        """
        found = correspond(self.layout, layout)
        found.require_part("the file", "the layout")
        remarks = self.remarks if found.note is None else (*self.remarks, found.note)
        return replace(self, tensors=tuple(pieces(self.tensors, found)), remarks=remarks)

    def without(self, names: Collection[str]) -> Checkpoint:
        """The checkpoint without some tensors, which count as excluded."""
        if not names:
            return self
        kept = tuple(tensor for tensor in self.tensors if tensor.name not in names)
        return replace(self, tensors=kept, excluded=tuple(sorted({*self.excluded, *names})))

    def beside(self, other: Checkpoint) -> tuple[Checkpoint, Checkpoint]:
        """The two with the same tensors in one order, piece by piece, of what both have."""
        theirs = other.common(self.layout)
        return self.common(theirs.layout), theirs

    def common(self, layout: Layout) -> Checkpoint:
        """The checkpoint with the tensors, or parts of them, that a layout has, in its order."""
        if self.layout.digest == layout.digest:
            return self
        found = correspond(self.layout, layout)
        return replace(self, tensors=tuple(pieces(self.tensors, found)))

    @property
    def num_parameters(self) -> int:
        """M."""
        return self.layout.num_parameters

    @property
    def dtypes(self) -> dict[str, int]:
        """Parameters by dtype, most first."""
        counts: Counter[str] = Counter()
        for tensor in self.tensors:
            counts[tensor.dtype] += tensor.size
        return dict(counts.most_common())

    @property
    def quantisation(self) -> str | None:
        """What its values are dequantised from, ``"Q4_K (86%), Q6_K (14%)"``; None if they are not.

        It is part of the origin of its supports. Types of less than a hundredth are left out.
        """
        counts: Counter[str] = Counter()
        for tensor in self.tensors:
            if isinstance(tensor, ComputedTensor) and tensor.dtype not in FLOATS:
                counts[tensor.dtype] += tensor.size
        total = sum(counts.values())
        shares = {kind: count / total for kind, count in counts.most_common() if count}
        named = [f"{kind} ({share:.0%})" for kind, share in shares.items() if share >= 0.01]
        return (named[0].rpartition(" (")[0] if len(named) == 1 else ", ".join(named)) or None

    @property
    def origin_note(self) -> str | None:
        """A note for the origin of its supports; None where its values are as they were trained."""
        kind = self.quantisation
        return None if kind is None else f"dequantised from {kind}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on its supports, a sentence each."""
        notes = [*self.remarks]
        if empty := [tensor for tensor in self.tensors if tensor.shape == (0,)]:
            notes.append(_empty(empty))
        if self.quantisation is not None:
            notes.append(f"its values are dequantised from {self.quantisation}")
        if self.skipped:
            count = len(self.skipped)
            notes.append(
                f"{count} {'tensor' if count == 1 else 'tensors'} of integers or booleans "
                f"{'is' if count == 1 else 'are'} left out, such as "
                f"{quote(self.skipped[0].name)} ({self.skipped[0].dtype})"
            )
        return tuple(notes)


@dataclass(frozen=True, slots=True)
class Stored:
    """The tensors of a checkpoint's files, before it is known what they are.

    Attributes:
        source: the file or index; of shards without an index, the first.
        named: the tensors by name, sorted.
        beside: the small files in its folder that say how the weights are to be read.
        remarks: notes on how its files were chosen and read.
    """

    source: Path
    named: Mapping[str, StoredTensor]
    beside: tuple[Path, ...]
    remarks: Remarks


def read_tensors(
    path: str | Path, limits: CheckpointLimits | None = None, open_file: OpenFile = FileIO
) -> Stored:
    """The tensors of a checkpoint, from headers alone.

    Args:
        path: a file, an index or a folder, as for :func:`modelkin.checkpoints.open_checkpoint`.
        limits: on what it may declare; None for the limits of the format alone.
        open_file: opens the files when values are read.

    Raises:
        InvalidCheckpoint: neither safetensors nor GGUF, damaged or incomplete; more than ``limits``
            allow.
        MissingExtra: it is GGUF, and the package ``gguf`` is not installed.
        OSError: a file cannot be read.
    """
    located = locate(Path(path), limits)
    source, remarks = located.source, located.notes
    if source.suffix.lower() == GGUF_SUFFIX:
        stored, more = read_gguf(located.files, limits)
    else:
        stored, more = _in_safetensors(located, limits)
    remarks += more
    if limits is not None:
        _check_limits(stored, limits, source.name)
    if open_file is not FileIO:
        stored = [tensor.opened_by(open_file) for tensor in stored]
    named = {tensor.name: tensor for tensor in sorted(stored, key=lambda t: t.name)}
    return Stored(source, named, located.beside, remarks)


def checkpoint_of(path: str | Path, stored: Stored, excluded: set[str]) -> Checkpoint:
    """The checkpoint of these tensors.

    Args:
        path: the opened path.
        stored: its tensors, with those that are left out.
        excluded: the names that are left out.

    Raises:
        InvalidCheckpoint: quantised in a way that is not read, or without parameters.
    """
    kept = [tensor for name, tensor in stored.named.items() if name not in excluded]
    for tensor in kept:
        if tensor.dtype in UNREADABLE:
            remedy = (
                "exclude it, which loses nothing of a table such as rotary frequencies"
                if tensor.dtype == "C64"
                else "give the checkpoint before quantisation"
            )
            raise bad_checkpoint(
                tensor.path.name,
                f"tensor {quote(tensor.name)} is {tensor.dtype}, which {UNREADABLE[tensor.dtype]}: "
                f"{remedy}",
            )
    floats = tuple(tensor for tensor in kept if _is_float(tensor))
    skipped = tuple(tensor for tensor in kept if not _is_float(tensor))
    _check_parameters(floats, skipped, len(excluded), stored.source.name)
    left_out, whole = tuple(sorted(excluded)), floats_of(stored.named)
    return Checkpoint(Path(path), floats, skipped, left_out, remarks=stored.remarks, stored=whole)


def floats_of(named: Mapping[str, StoredTensor]) -> tuple[StoredTensor, ...]:
    """The tensors of floats, also those that are computed."""
    return tuple(tensor for tensor in named.values() if _is_float(tensor))


def _is_float(tensor: StoredTensor) -> bool:
    return tensor.dtype in FLOATS or isinstance(tensor, ComputedTensor)


def _in_safetensors(
    located: Located, limits: CheckpointLimits | None
) -> tuple[list[StoredTensor], Remarks]:
    """The tensors of safetensors files, and remarks on their shards."""
    source, files = located.source, list(located.files)
    index_bytes = source.stat().st_size if source not in files else 0
    stored = _in_files(files, limits, index_bytes)
    if source not in files or len(files) > 1:
        return _owned(stored, located)
    return stored, ()


def _in_files(
    paths: list[Path], limits: CheckpointLimits | None, beside: int = 0
) -> list[StoredTensor]:
    """The tensors of several files.

    Args:
        beside: bytes of the checkpoint that were read before.
    """
    if limits is not None:
        length = beside + sum(map(header_length, paths))
        if length > limits.header:
            raise bad_checkpoint(
                paths[0].name,
                f"the headers of the checkpoint have {length} bytes, at most {limits.header} are "
                f"read here",
            )
    return [_stored_tensor(entry, path) for path in paths for entry in read_header(path)]


def _stored_tensor(entry: TensorEntry, path: Path) -> StoredTensor:
    return StoredTensor(entry.name, entry.dtype, entry.shape, path, entry.begin)


def _owned(stored: list[StoredTensor], located: Located) -> tuple[list[StoredTensor], Remarks]:
    """The tensors that belong to the model, each from the shard that counts, and remarks."""
    held: dict[str, list[str]] = {}
    for tensor in stored:
        held.setdefault(tensor.path.name, []).append(tensor.name)
    owners, remarks = owners_of(located.weight_map, held, located.whole, located.source.name)
    return [tensor for tensor in stored if owners.get(tensor.name) == tensor.path.name], remarks


def _check_limits(stored: list[StoredTensor], limits: CheckpointLimits, where: str) -> None:
    """Refuse a checkpoint whose layout would be too large."""
    if len(stored) > limits.tensors:
        raise bad_checkpoint(
            where, f"it holds {len(stored)} tensors, at most {limits.tensors} are accepted here"
        )
    for tensor in stored:
        if len(tensor.name) > limits.name:
            raise bad_checkpoint(
                where,
                f"the name of tensor {quote(tensor.name)} has {len(tensor.name)} characters, at "
                f"most {limits.name} are accepted here",
            )
        if len(tensor.shape) > limits.dimensions:
            raise bad_checkpoint(
                where,
                f"tensor {quote(tensor.name)} has {len(tensor.shape)} dimensions, at most "
                f"{limits.dimensions} are accepted here",
            )


def matching(
    names: Iterable[str], patterns: Iterable[str], where: str, unmatched_ok: bool
) -> set[str]:
    """The names that match a shell pattern.

    Raises:
        InvalidCheckpoint: a pattern matches none, unless that is allowed.
    """
    matched: set[str] = set()
    names = list(names)
    for pattern in patterns:
        found = {name for name in names if fnmatch.fnmatchcase(name, pattern)}
        if not found and not unmatched_ok:
            raise bad_checkpoint(where, f"no tensor name matches {quote(pattern)}")
        matched |= found
    return matched


def _is_list_of_indices(tensor: StoredTensor) -> bool:
    """Whether it numbers positions, tokens or rows; codes are matrices, or have fewer bits."""
    return tensor.dtype in ("I64", "U64") and len(tensor.shape) < 2


def _check_parameters(
    floats: tuple[StoredTensor, ...],
    skipped: tuple[StoredTensor, ...],
    excluded: int,
    where: str,
) -> None:
    parameters = sum(tensor.size * tensor.itemsize for tensor in floats)
    if parameters == 0 and excluded:
        raise bad_checkpoint(
            where,
            f"exclude leaves out {excluded} tensors, and no tensor of floats is left: exclude "
            f"fewer",
        )
    if parameters == 0:
        empty = f": {_empty(floats)}" if floats else ""
        raise bad_checkpoint(where, f"it holds no tensor of floats, and so no parameters{empty}")
    packed = [t for t in skipped if t.dtype != "BOOL" and not _is_list_of_indices(t)]
    size = sum(tensor.size * tensor.itemsize for tensor in packed)
    if size > _MAX_INTEGER_SHARE * (size + parameters):
        largest = max(packed, key=lambda t: t.size * t.itemsize)
        raise bad_checkpoint(
            where,
            f"{size / (size + parameters):.0%} of its bytes are integers, most of them in "
            f"{quote(largest.name)} ({largest.dtype}): it looks quantised; give the checkpoint "
            f"before quantisation, or exclude these tensors if they are not weights",
        )


def _empty(tensors: Sequence[StoredTensor]) -> str:
    """Words about tensors without an entry."""
    first = tensors[0]
    return (
        f"{len(tensors)} tensors are empty, such as {quote(first.name)} of shape "
        f"{list(first.shape)}, as a training under ZeRO-3 saves what it has not gathered "
        f"(stage3_gather_16bit_weights_on_model_save)"
    )
