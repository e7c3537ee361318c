"""The header of one safetensors file, read and checked for consistency. It never reads a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from modelkin.core.file_formats import BEGINNING_BYTES, describe_beginning, is_piece, unread_format
from modelkin.core.foreign_json import decode_json
from modelkin.core.safetensors_header import (
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    TensorEntry,
    bad_checkpoint,
    length_problem,
    parse_header,
)

__all__ = [
    "MAX_HEADER_BYTES",
    "CheckpointLimits",
    "TensorEntry",
    "bad_checkpoint",
    "header_length",
    "parse_header",
    "read_header",
    "read_metadata",
]


@dataclass(frozen=True, slots=True)
class CheckpointLimits:
    """Limits on an untrusted checkpoint, since headers are read into memory.

    Attributes:
        header: bytes of all headers and the index together.
        tensors: the number of tensors in all shards.
        name: the characters of a tensor's name.
        dimensions: the most dimensions of one tensor.
    """

    header: int
    tensors: int
    name: int
    dimensions: int


def read_header(path: Path) -> tuple[TensorEntry, ...]:
    """The tensors of a file, in the order of their bytes.

    Raises:
        InvalidCheckpoint: not a safetensors file, truncated, or with an inconsistent header.
        OSError: a file cannot be read.
    """
    length = header_length(path)
    with path.open("rb") as file:
        file.seek(LENGTH_BYTES)
        return parse_header(file.read(length), path.stat().st_size, path.name)


class _Metadata(msgspec.Struct):
    """What is read of a header for its metadata."""

    metadata: dict[str, str] | None = msgspec.field(name="__metadata__", default=None)


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file whose header was read before; raises OSError."""
    length = header_length(path)
    with path.open("rb") as file:
        file.seek(LENGTH_BYTES)
        return decode_json(file.read(length), _Metadata).metadata or {}


def header_length(path: Path) -> int:
    """The length of a file's header, without reading it; raises as :func:`read_header`."""
    with path.open("rb") as file:
        size = path.stat().st_size
        beginning = file.read(BEGINNING_BYTES)
    length = int.from_bytes(beginning[:LENGTH_BYTES], "little")
    if size < LENGTH_BYTES or not 2 <= length <= size - LENGTH_BYTES or length > MAX_HEADER_BYTES:
        raise bad_checkpoint(path.name, _problem(path, size, beginning))
    return length


def _problem(path: Path, size: int, beginning: bytes) -> str:
    """Why a file is none of safetensors: by what it begins with, else by its name.

    A piece of a file that was cut is that, whatever the file began with.
    """
    known = None if is_piece(path.name) else describe_beginning(beginning)
    told = None if known else unread_format(path.as_posix())
    return length_problem(size, beginning) if told is None else f"by its name it is {told}"
