"""A checkpoint on disk: one file, or shards and the index that names them, as one list of tensors.

It never keeps a file open, and maps no tensor: mapped pages would count as memory in use.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from modelkin.checkpoints.dtypes import FLOATS, UNREADABLE
from modelkin.checkpoints.header import (
    MAX_HEADER_BYTES,
    CheckpointLimits,
    TensorEntry,
    bad_checkpoint,
    header_length,
    read_header,
)
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.foreign_json import decode_json, has_control_character
from modelkin.core.layout import Layout
from modelkin.core.quoting import quote

__all__ = ["Checkpoint", "checkpoint_of", "matching", "read_index", "read_tensors"]

_SUFFIX: Final = ".safetensors"
_INDEX_SUFFIX: Final = ".safetensors.index.json"
_MAX_INTEGER_SHARE: Final = 0.1
"""The share of integer bytes above which a checkpoint counts as quantised: position ids and masks
stay below it, packed weights do not."""
_SCALE_SUFFIXES: Final = ("_scale", "_scale_inv")
"""The suffixes of the names of tensors with the scales of others."""
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")


class _Index(msgspec.Struct):
    """What is read of an index."""

    weight_map: dict[str, str]


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint in the order of its parameters: by name, or as :meth:`in_order`.

    Attributes:
        path: the opened path.
        tensors: the parameters: tensors of floats. Buffers of floats are among them: a file does
            not distinguish them. Tied tensors occur once, where the file has them.
        skipped: tensors of integers and booleans, which have no gradient and no importance.
        excluded: names left out on request.
    """

    path: Path
    tensors: tuple[StoredTensor, ...]
    skipped: tuple[StoredTensor, ...]
    excluded: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the file or folder for messages, also for ``.``."""
        return self.path.resolve().name

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

        Raises:
            SpaceMismatch: the tensors differ; names the first that does.
        """
        if self.layout.digest == layout.digest:
            return self
        self.layout.require_same_tensors(layout)
        tensors = {tensor.name: tensor for tensor in self.tensors}
        return replace(self, tensors=tuple(tensors[spec.name] for spec in layout.tensors))

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
    def notes(self) -> tuple[str, ...]:
        """Remarks on its supports, a sentence each."""
        notes = []
        if self.skipped:
            notes.append(
                f"{len(self.skipped)} tensors of integers or booleans are left out, such as "
                f"{quote(self.skipped[0].name)} ({self.skipped[0].dtype})"
            )
        scales = [t.name for t in self.tensors if t.name.endswith(_SCALE_SUFFIXES)]
        if scales and any(t.dtype.startswith("F8") for t in self.tensors):
            notes.append(
                f"8-bit values are compared as they are stored, without their scales "
                f"(such as {quote(scales[0])}); a checkpoint of more bits avoids this doubt"
            )
        return tuple(notes)


def read_tensors(
    path: str | Path, limits: CheckpointLimits | None = None
) -> tuple[Path, dict[str, StoredTensor]]:
    """The file or index of a checkpoint, and its tensors sorted by name, from headers alone.

    Args:
        path: a ``.safetensors`` file, an index (``*.safetensors.index.json``) of shards beside it,
            or a folder that holds one checkpoint.
        limits: on what it may declare; None for the limits of the format alone.

    Raises:
        InvalidCheckpoint: not safetensors, damaged or incomplete; more than ``limits`` allow.
        OSError: a file cannot be read.
    """
    source = _resolve(Path(path))
    sharded = source.name.endswith(".json")
    stored = _in_shards(source, limits) if sharded else _in_files([source], limits)
    if limits is not None:
        _check_limits(stored, limits, source.name)
    return source, {tensor.name: tensor for tensor in sorted(stored, key=lambda t: t.name)}


def checkpoint_of(
    path: str | Path, source: Path, named: Mapping[str, StoredTensor], excluded: set[str]
) -> Checkpoint:
    """The checkpoint of these tensors.

    Args:
        path: the opened path.
        source: as :func:`read_tensors` gives it; ``named`` likewise.
        excluded: the names that are left out.

    Raises:
        InvalidCheckpoint: quantised, or without parameters.
    """
    kept = [tensor for name, tensor in named.items() if name not in excluded]
    for tensor in kept:
        if tensor.dtype in UNREADABLE:
            raise bad_checkpoint(
                tensor.path.name,
                f"tensor {quote(tensor.name)} is {tensor.dtype}, which {UNREADABLE[tensor.dtype]}: "
                f"give the checkpoint before quantisation",
            )
    floats = tuple(tensor for tensor in kept if tensor.dtype in FLOATS)
    skipped = tuple(tensor for tensor in kept if tensor.dtype not in FLOATS)
    _check_parameters(floats, skipped, len(excluded), source.name)
    return Checkpoint(Path(path), floats, skipped, tuple(sorted(excluded)))


def _resolve(path: Path) -> Path:
    """The file or the index of a path."""
    if not path.is_dir():
        shard = _SHARD.fullmatch(path.name)
        if shard and int(shard[3]) > 1:
            raise bad_checkpoint(
                path.name,
                f"it is one of {int(shard[3])} shards: give their folder, or {shard[1]}"
                f"{_INDEX_SUFFIX}",
            )
        return path
    files = sorted(entry for entry in path.iterdir() if entry.is_file())
    found = [f for f in files if f.name.endswith(_INDEX_SUFFIX)]
    found = found or [f for f in files if f.name.endswith(".safetensors")]
    if len(found) != 1:
        some = ", ".join(quote(f.name) for f in found[:3])
        what = f"several checkpoints, {some}: give one of them" if found else "no .safetensors file"
        raise bad_checkpoint(str(path), f"the folder holds {what}")
    return found[0]


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


def _in_shards(index: Path, limits: CheckpointLimits | None) -> list[StoredTensor]:
    """The tensors of all shards; index and shards must say the same."""
    weight_map = read_index(index, limits)
    listed: dict[str, set[str]] = {}
    for name, shard in weight_map.items():
        listed.setdefault(shard, set()).add(name)
    for shard in sorted(listed):
        if not (index.parent / shard).is_file():
            raise bad_checkpoint(index.name, f"shard {quote(shard)} is missing beside it")
    stored = _in_files(
        [index.parent / shard for shard in sorted(listed)], limits, index.stat().st_size
    )
    held: dict[str, set[str]] = {shard: set() for shard in listed}
    for tensor in stored:
        held[tensor.path.name].add(tensor.name)
    for shard in sorted(listed):
        differing = sorted(listed[shard] ^ held[shard])
        if differing:
            where = "the index alone" if differing[0] in listed[shard] else "the shard alone"
            raise bad_checkpoint(
                index.name,
                f"it and {shard} disagree on {len(differing)} tensors: "
                f"{quote(differing[0])} is in {where}",
            )
    return stored


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


def read_index(index: Path, limits: CheckpointLimits | None = None) -> dict[str, str]:
    """The shard of every tensor that an index names, each a file beside it.

    Raises:
        InvalidCheckpoint: not an index of safetensors shards, or longer than allowed.
    """
    max_bytes = MAX_HEADER_BYTES if limits is None else limits.header
    if index.stat().st_size > max_bytes:
        raise bad_checkpoint(index.name, f"an index has at most {max_bytes} bytes")
    try:
        weight_map = decode_json(index.read_bytes(), _Index).weight_map
    except msgspec.ValidationError:
        raise bad_checkpoint(
            index.name, "it has no weight_map of texts: it is not an index of shards"
        ) from None
    except ValueError as error:
        raise bad_checkpoint(index.name, f"it is not JSON: {error}") from None
    if not weight_map:
        raise bad_checkpoint(index.name, "it has no weight_map: it is not an index of shards")
    for name, file in weight_map.items():
        if Path(file).name != file or not file.endswith(_SUFFIX):
            raise bad_checkpoint(
                index.name, f"it names {quote(file)}, which is not a {_SUFFIX} file beside it"
            )
        if has_control_character(name) or has_control_character(file):
            raise bad_checkpoint(
                index.name,
                f"the name of tensor {quote(name)}, or of its shard {quote(file)}, has a control "
                f"character",
            )
    return weight_map


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
        raise bad_checkpoint(where, "it holds no tensor of floats, and so no parameters")
    packed = [t for t in skipped if t.dtype != "BOOL"]
    size = sum(tensor.size * tensor.itemsize for tensor in packed)
    if size > _MAX_INTEGER_SHARE * (size + parameters):
        largest = max(packed, key=lambda t: t.size * t.itemsize)
        raise bad_checkpoint(
            where,
            f"{size / (size + parameters):.0%} of its bytes are integers, most of them in "
            f"{quote(largest.name)} ({largest.dtype}): it looks quantised; give the checkpoint "
            f"before quantisation, or exclude these tensors if they are not weights",
        )
