"""The header of a GGUF file: its metadata and the places of its tensors, read strictly.

Source: the format's description (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md),
versions 2 and 3, little-endian, with the limits of ggml's own reader. Texts and arrays that are not
used here, such as vocabularies, are passed over: the memory does not grow with them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeAlias

from modelkin.checkpoints.gguf.types import QuantType, quant_type
from modelkin.checkpoints.header import CheckpointLimits, bad_checkpoint
from modelkin.core.file_formats import BEGINNING_BYTES, describe_beginning
from modelkin.core.foreign_json import has_control_character
from modelkin.core.quoting import quote
from modelkin.core.safetensors_header import LENGTH_BYTES
from modelkin.errors import InvalidCheckpoint

__all__ = [
    "MAGIC",
    "MAX_HEADER_BYTES",
    "GgufEntry",
    "GgufHeader",
    "Value",
    "holds_header",
    "parse_gguf_header",
    "read_gguf_header",
]

MAGIC: Final = b"GGUF"
MAX_HEADER_BYTES: Final = 1 << 26
"""The longest header that is read: of vocabularies of 256,000 tokens some 16 MB are known."""

_VERSIONS: Final = (2, 3)
_MAX_KEYS: Final = 1 << 13
_MAX_TENSORS: Final = 1 << 16
_MAX_KEY_BYTES: Final = 512
_MAX_NAME_BYTES: Final = 256
_MAX_TEXT_BYTES: Final = 1 << 10
"""The longest text that is kept, and of which no use is made otherwise."""
_MAX_NUMBERS: Final = 512
"""The longest array that is kept: of a number for each layer."""
_MAX_DIMENSIONS: Final = 4
_MAX_SIZE: Final = 2**63 - 1
_MAX_ALIGNMENT: Final = 1 << 16
_DEFAULT_ALIGNMENT: Final = 32
_ALIGNMENT_KEY: Final = "general.alignment"
_ENDED: Final = "it ends within its header: it is truncated, get it again"
_SMALLEST: Final = 24
"""Bytes of a header without keys and tensors."""
_STRING, _ARRAY, _BOOL = 8, 9, 7
_FORMATS: Final = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
"""The types of numbers, as ``struct`` names them."""

Value: TypeAlias = int | float | str | tuple[int | float, ...]


class GgufEntry(NamedTuple):
    """A tensor as a header declares it: its bytes are ``begin`` to ``end`` of the file.

    The shape is in the order of Hugging Face's files, the reverse of that in the header.
    """

    name: str
    kind: QuantType
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a file says of itself.

    Attributes:
        metadata: numbers, short texts and short arrays of numbers by key.
        tensors: in the order of their bytes.
    """

    metadata: dict[str, Value] = field(repr=False)
    tensors: tuple[GgufEntry, ...]

    def text(self, key: str) -> str | None:
        """The text of a key; None without one."""
        found = self.metadata.get(key)
        return found if isinstance(found, str) else None

    def count(self, key: str) -> int | None:
        """The whole number of a key; None without one."""
        found = self.metadata.get(key)
        return found if isinstance(found, int) else None


def read_gguf_header(path: Path, limits: CheckpointLimits | None = None) -> GgufHeader:
    """Read the header of a file.

    Args:
        path: the file.
        limits: on its tensors; None for those of the format alone.

    Raises:
        InvalidCheckpoint: not GGUF, of another version, truncated, or inconsistent.
        MissingExtra: the package ``gguf`` is not installed.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return parse_gguf_header(file, path.stat().st_size, path.name, limits)


def parse_gguf_header(
    file: BinaryIO, size: int, where: str, limits: CheckpointLimits | None = None
) -> GgufHeader:
    """Read a header from an open file.

    Args:
        file: at its beginning.
        size: the bytes of the whole file.
        where: its name for errors.
        limits: as for :func:`read_gguf_header`, which raises the same errors.
    """
    most = _MAX_TENSORS if limits is None else min(limits.tensors, _MAX_TENSORS)
    return _Reader(file, size, where).header(most)


def holds_header(beginning: bytes, size: int) -> bool:
    """Whether the beginning of a file of ``size`` bytes holds its header, or shows its faults."""
    try:
        parse_gguf_header(io.BytesIO(beginning), size, "")
    except _CutHeader:
        return False
    except InvalidCheckpoint:
        return True
    return True


class _CutHeader(InvalidCheckpoint):
    """The file has fewer bytes than were said."""


class _Reader:
    """A pass over a header: it takes no more memory than a buffer, whatever the header declares."""

    def __init__(self, file: BinaryIO, size: int, where: str) -> None:
        self._file, self._size, self._where = file, size, where
        self._at = 0

    def header(self, most_tensors: int) -> GgufHeader:
        """All of it."""
        tensors, keys = self._beginning(most_tensors)
        metadata: dict[str, Value] = {}
        seen: set[str] = set()
        for _ in range(keys):
            key = self._text(_MAX_KEY_BYTES, "a key of its metadata")
            if key in seen:
                raise self._bad(f"its metadata has {quote(key)} twice")
            seen.add(key)
            value = self._value(self._number("I"), key)
            if value is not None:
                metadata[key] = value
        infos = [self._info() for _ in range(tensors)]
        entries = self._place(infos, self._alignment(metadata))
        return GgufHeader(metadata, entries)

    def _beginning(self, most_tensors: int) -> tuple[int, int]:
        """The numbers of tensors and keys."""
        beginning = self._file.read(BEGINNING_BYTES)
        self._file.seek(0)
        if not beginning.startswith(MAGIC) or self._size < _SMALLEST:
            raise self._bad(self._other_format(beginning))
        self._take(len(MAGIC))
        version = self._number("I")
        if version & 0xFFFF == 0 and version:
            raise self._bad(
                "it is a big-endian GGUF file: convert it by gguf-convert-endian of the package "
                "gguf"
            )
        if version not in _VERSIONS:
            raise self._bad(
                f"it is GGUF of version {version}, and versions 2 and 3 are read: convert the "
                f"model again"
            )
        tensors, keys = self._number("Q"), self._number("Q")
        for what, count, most in (("tensors", tensors, most_tensors), ("keys", keys, _MAX_KEYS)):
            if count > most:
                raise self._bad(f"it declares {count} {what}, at most {most} are read here")
        return tensors, keys

    def _other_format(self, beginning: bytes) -> str:
        """What a file is that does not begin as GGUF, or is too short for it."""
        if beginning[LENGTH_BYTES : LENGTH_BYTES + 2] == b'{"':
            return "it is a safetensors file: its name has to end in .safetensors"
        told = None if beginning.startswith(MAGIC) else describe_beginning(beginning)
        return told or f"it has {self._size} bytes and is not a GGUF file"

    def _value(self, kind: int, key: str) -> Value | None:
        """The value of a key, passed over; None where nothing uses it."""
        if kind == _STRING:
            length = self._length(f"the text of {quote(key)}")
            if length <= _MAX_TEXT_BYTES:
                return self._take(length).decode("utf-8", "replace")
            self._skip(length)
            return None
        if kind != _ARRAY:
            return self._numbers(kind, 1, key)[0]
        kind, count = self._number("I"), self._number("Q")
        if kind == _ARRAY:
            raise self._bad(f"{quote(key)} is an array of arrays, which no reader of GGUF takes")
        if kind != _STRING and count <= _MAX_NUMBERS:
            return self._numbers(kind, count, key)
        if kind == _STRING:
            self._skip_texts(count, key)
        else:
            self._skip(count * self._width(kind, key))
        return None

    def _numbers(self, kind: int, count: int, key: str) -> tuple[int | float, ...]:
        width = self._width(kind, key)
        raw = self._take(count * width)
        if kind == _BOOL and not set(raw) <= {0, 1}:
            raise self._bad(f"{quote(key)} is neither true nor false")
        return struct.unpack(f"<{count}{_FORMATS[kind]}", raw)

    def _width(self, kind: int, key: str) -> int:
        if kind not in _FORMATS:
            raise self._bad(f"{quote(key)} is of type {kind}, which GGUF does not have")
        return struct.calcsize("<" + _FORMATS[kind])

    def _skip_texts(self, count: int, key: str) -> None:
        if 8 * count > self._size - self._at:
            raise self._bad(f"{quote(key)} declares {count} texts, more than the file has room for")
        for _ in range(count):
            self._skip(int.from_bytes(self._take(8), "little"))

    def _info(self) -> tuple[str, QuantType, tuple[int, ...], int]:
        """The name, type, shape and offset of a tensor."""
        name = self._text(_MAX_NAME_BYTES, "the name of a tensor")
        dimensions = self._number("I")
        if dimensions > _MAX_DIMENSIONS:
            raise self._bad(
                f"tensor {quote(name)} has {dimensions} dimensions, GGUF has at most "
                f"{_MAX_DIMENSIONS}"
            )
        sizes = struct.unpack(f"<{dimensions}Q", self._take(8 * dimensions))
        if prod(sizes) > _MAX_SIZE or max(sizes, default=1) > _MAX_SIZE:
            raise self._bad(f"tensor {quote(name)} has more elements than a file can hold")
        kind = quant_type(self._number("I"), name, self._where)
        if sizes and sizes[0] % kind.block_size:
            raise self._bad(
                f"tensor {quote(name)} has rows of {sizes[0]} values, which blocks of "
                f"{kind.block_size} ({kind.name}) do not fill"
            )
        return name, kind, sizes[::-1], self._number("Q")

    def _alignment(self, metadata: dict[str, Value]) -> int:
        alignment = metadata.get(_ALIGNMENT_KEY, _DEFAULT_ALIGNMENT)
        right = isinstance(alignment, int) and 0 < alignment <= _MAX_ALIGNMENT
        if not isinstance(alignment, int) or not right or alignment & (alignment - 1):
            raise self._bad(f"its {_ALIGNMENT_KEY} is {alignment!r}, and has to be a power of two")
        return alignment

    def _place(
        self, infos: Iterable[tuple[str, QuantType, tuple[int, ...], int]], alignment: int
    ) -> tuple[GgufEntry, ...]:
        """The tensors in the order of their bytes, which follow each other without gaps."""
        after = self._at
        start = -(-after // alignment) * alignment
        entries = [
            GgufEntry(name, kind, shape, start + offset, start + offset + kind.size_of(shape))
            for name, kind, shape, offset in infos
        ]
        entries.sort(key=attrgetter("begin", "end"))
        names: set[str] = set()
        at, last, end = start, "the header", after
        for entry in entries:
            if entry.name in names:
                raise self._bad(f"it has tensor {quote(entry.name)} twice")
            names.add(entry.name)
            if entry.begin != at:
                wrong = "overlaps" if entry.begin < at else "leaves a gap after"
                raise self._bad(f"tensor {quote(entry.name)} {wrong} {last}")
            end, last = entry.end, quote(entry.name)
            at = -(-end // alignment) * alignment
        if not end <= self._size <= max(at, end):
            wrong = "truncated: get it again" if end > self._size else "followed by other bytes"
            raise self._bad(
                f"its tensors end at byte {end}, the file at {self._size}: it is {wrong}"
            )
        return tuple(entries)

    def _text(self, most: int, what: str) -> str:
        """A text that has to be one."""
        length = self._length(what)
        if length > most:
            raise self._bad(f"{what} has {length} bytes, at most {most} are read here")
        try:
            text = self._take(length).decode()
        except UnicodeDecodeError:
            raise self._bad(f"{what} is not UTF-8") from None
        if has_control_character(text):
            raise self._bad(f"{what}, {quote(text)}, has a control character")
        return text

    def _length(self, what: str) -> int:
        length = self._number("Q")
        if length > self._size - self._at:
            raise self._bad(f"{what} has {length} bytes, more than the file")
        return length

    def _number(self, kind: str) -> int:
        return int(struct.unpack("<" + kind, self._take(struct.calcsize("<" + kind)))[0])

    def _take(self, count: int) -> bytes:
        self._advance(count)
        taken = self._file.read(count)
        if len(taken) != count:
            raise _CutHeader(f"{self._where}: {_ENDED}")
        return taken

    def _skip(self, count: int) -> None:
        self._advance(count)
        self._file.seek(count, 1)

    def _advance(self, count: int) -> None:
        self._at += count
        if self._at > self._size:
            raise self._bad(_ENDED)
        if self._at > MAX_HEADER_BYTES:
            raise self._bad(
                f"its header has more than {MAX_HEADER_BYTES} bytes, the most that are read here"
            )

    def _bad(self, why: str) -> Exception:
        return bad_checkpoint(self._where, why)
