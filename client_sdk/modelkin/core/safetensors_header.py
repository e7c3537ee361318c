"""The header of a safetensors file as a value: parsed, checked for consistency, and made.

Source: the format's description (https://github.com/huggingface/safetensors#format): 8 bytes of
length, little-endian, that many bytes of JSON, then the tensors' bytes, without gaps. It reads no
file and no tensor, and allocates nothing that a header declares.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from math import prod
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol

import msgspec

from modelkin.core.file_formats import BEGINNING_BYTES, describe_beginning
from modelkin.core.foreign_json import (
    Raw,
    count_members,
    decode_json,
    decoder_of,
    has_control_character,
)
from modelkin.core.quoting import quote
from modelkin.errors import InvalidCheckpoint

__all__ = [
    "BITS",
    "LENGTH_BYTES",
    "MAX_HEADER_BYTES",
    "TensorEntry",
    "bad_checkpoint",
    "header_of",
    "length_problem",
    "parse_header",
]

MAX_HEADER_BYTES: Final = 100_000_000
"""The longest header the format allows, in bytes."""

LENGTH_BYTES: Final = 8
"""Bytes before the header, which are its length."""
_SHORTEST: Final = len(b"{}")
"""Bytes of the shortest header."""

BITS: Final = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""The bits of an element of each type that the format knows (safetensors 0.8, ``Dtype``)."""

_KEYS = ("dtype", "shape", "data_offsets")
_MAX_COUNT = 2**63 - 1
_MAX_METADATA = 10_000
"""Entries of the metadata, which are not used here."""
_MAX_DESCRIPTION_BYTES = 1 << 16
"""Bytes of a tensor's description that a refusal looks into."""
_OBJECT_NAME: Final = re.compile(rb'("(?:[^"\\]|\\.)*")\s*:\s*\{')

_Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)]


class _Fields(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The description of a tensor."""

    dtype: Literal[tuple(BITS)]  # type: ignore[valid-type]
    shape: tuple[_Count, ...]
    data_offsets: tuple[_Count, _Count]


class TensorEntry(NamedTuple):
    """A tensor as a header declares it: its bytes are ``begin`` to ``end`` of the file.

    A header may have a hundred thousand: a named tuple is made in half the time of a dataclass.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class _Tensor(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


def header_of(tensors: Iterable[_Tensor]) -> tuple[tuple[TensorEntry, ...], bytes]:
    """The places of tensors in a file of them, and the bytes before the first.

    The widest types come first, so that every tensor is aligned, and names decide among equals:
    the same tensors have the same header, whatever their order here.

    Args:
        tensors: with distinct names, of types of whole bytes.
    """
    fields: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    placed, at = list[tuple[_Tensor, int, int]](), 0
    for tensor in sorted(tensors, key=lambda tensor: (-BITS[tensor.dtype], tensor.name)):
        end = at + prod(tensor.shape) * BITS[tensor.dtype] // 8
        fields[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        placed.append((tensor, at, end))
        at = end
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    start = LENGTH_BYTES + len(text)
    entries = tuple(
        TensorEntry(each.name, each.dtype, tuple(each.shape), start + begin, start + end)
        for each, begin, end in placed
    )
    return entries, len(text).to_bytes(LENGTH_BYTES, "little") + text


def parse_header(header: bytes, file_size: int, where: str) -> tuple[TensorEntry, ...]:
    """The tensors that a header declares, in the order of their bytes.

    Args:
        header: the JSON, without the 8 bytes before it.
        file_size: bytes of the whole file, which the tensors must fill to its end.
        where: the name of the file for errors.

    Raises:
        InvalidCheckpoint: the header is inconsistent, or a name in it is no text.
    """
    begin = LENGTH_BYTES + len(header)
    fields = _load(header, where)
    written = count_members(header)
    members = len(fields) + _count_metadata(fields.pop("__metadata__", None), where)
    entries = [_entry(name, value, begin, where) for name, value in fields.items()]
    if written != members + len(_KEYS) * len(entries):
        raise bad_checkpoint(where, f"its header is not valid JSON: {_repeated(header)}")
    fields.clear()
    for key in ("end", "begin"):  # one after the other, which makes no pair for each tensor
        entries.sort(key=attrgetter(key))
    at, last = begin, "the header"
    for entry in entries:
        if entry.begin != at:
            wrong = "overlaps" if entry.begin < at else "leaves a gap after"
            raise bad_checkpoint(where, f"tensor {quote(entry.name)} {wrong} {last}")
        at, last = entry.end, quote(entry.name)
    if at != file_size:
        wrong = "truncated: get it again" if at > file_size else "followed by other bytes"
        raise bad_checkpoint(
            where, f"its tensors end at byte {at}, the file at {file_size}: it is {wrong}"
        )
    return tuple(entries)


def length_problem(size: int, beginning: bytes) -> str:
    """Say why a file of ``size`` bytes cannot be one of safetensors, by what it begins with.

    Args:
        size: the bytes of the file.
        beginning: its first bytes, ``file_formats.BEGINNING_BYTES`` where there are as many.
    """
    if known := describe_beginning(beginning[:size]):
        return known
    least = LENGTH_BYTES + _SHORTEST
    if size < least:
        return f"it has {size} bytes, a safetensors file has at least {least}"
    length = int.from_bytes(beginning[:LENGTH_BYTES], "little")
    if length < _SHORTEST:
        return "its first 8 bytes are no length of a header: it is not a safetensors file"
    if length > MAX_HEADER_BYTES:
        return (
            f"its first 8 bytes declare a header of {length} bytes, more than the format's "
            f"{MAX_HEADER_BYTES}: it is not a safetensors file"
        )
    return (
        f"its first 8 bytes declare a header of {length} bytes, {size - LENGTH_BYTES} follow: it "
        f"is truncated, or not a safetensors file"
    )


def _load(header: bytes, where: str) -> dict[str, Raw]:
    """The names of a header, and their values, which are not decoded yet."""
    if header[:1] != b"{":
        # The first letters of a name, as in an archive, may pass for the length of a header.
        beginning = len(header).to_bytes(LENGTH_BYTES, "little") + header[:BEGINNING_BYTES]
        problem = "its header does not begin with '{': it is not a safetensors file"
        raise bad_checkpoint(where, describe_beginning(beginning) or problem)
    try:
        return decode_json(header, dict[str, Raw])
    except ValueError as error:
        raise bad_checkpoint(where, f"its header is not valid JSON: {error}") from None


def _count_metadata(metadata: Raw | None, where: str) -> int:
    """Count the names of the metadata, which are a map of texts."""
    if metadata is None or bytes(metadata) == b"null":
        return 0
    count = count_members(metadata)
    if count > _MAX_METADATA:
        raise bad_checkpoint(
            where, f"its __metadata__ has {count} entries, at most {_MAX_METADATA} are read"
        )
    try:
        return len(decode_json(metadata, dict[str, str]))
    except msgspec.ValidationError:
        raise bad_checkpoint(where, "its __metadata__ is not a map of strings") from None
    except ValueError as error:
        raise bad_checkpoint(where, f"its __metadata__ is not valid JSON: {error}") from None


def _repeated(header: bytes) -> str:
    """Say which name is repeated in a header."""
    names = Counter(_OBJECT_NAME.findall(header))
    for name, count in names.most_common(1):
        if count > 1:
            return f"the name {quote(name[1:-1].decode('utf-8', 'backslashreplace'))} is repeated"
    return "a name within an object is repeated"


def _entry(name: str, value: Raw, begin: int, where: str) -> TensorEntry:
    if has_control_character(name):
        raise bad_checkpoint(where, f"the name of tensor {quote(name)} has a control character")
    try:
        fields = decoder_of(_Fields).decode(value)
    except (ValueError, RecursionError):
        raise bad_checkpoint(where, _problem(name, value)) from None
    dtype, shape, (first, last) = fields.dtype, fields.shape, fields.data_offsets
    if first > last:
        raise bad_checkpoint(where, f"tensor {quote(name)} has no ascending pair as data_offsets")
    bits = _product(shape) * BITS[dtype]
    if bits != 8 * (last - first):
        raise bad_checkpoint(
            where,
            f"tensor {quote(name)}, {dtype} of shape {quote(list(shape))}, takes {bits / 8:.15g} "
            f"bytes, its data_offsets span {last - first}",
        )
    return TensorEntry(name, dtype, shape, begin + first, begin + last)


def _problem(name: str, value: Raw) -> str:
    """Say what is wrong with the description of a tensor that could not be decoded."""
    undescribed = f"tensor {quote(name)} is not described by {', '.join(_KEYS)}"
    if len(memoryview(value)) > _MAX_DESCRIPTION_BYTES:  # as objects it would take much memory
        return undescribed
    try:
        fields = decode_json(value)
    except ValueError as error:
        return f"its header is not valid JSON: tensor {quote(name)}: {error}"
    if not isinstance(fields, dict) or fields.keys() != set(_KEYS):
        return undescribed
    dtype, shape = fields["dtype"], fields["shape"]
    if not isinstance(dtype, str) or dtype not in BITS:
        return f"tensor {quote(name)} has the dtype {quote(dtype)}, unknown to this modelkin"
    if not _are_counts(shape):
        return f"tensor {quote(name)} has no list of counts as its shape"
    return f"tensor {quote(name)} has no ascending pair as data_offsets"


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v <= _MAX_COUNT for v in value)


def _product(shape: tuple[int, ...]) -> int:
    """Multiply counts, up to where the product exceeds every file: a header may hold millions."""
    if 0 in shape:
        return 0
    size = 1
    for dimension in shape:
        size *= dimension
        if size > _MAX_COUNT:
            break
    return size


def bad_checkpoint(where: str, what: str) -> InvalidCheckpoint:
    """The error that names the file and says what is wrong with it."""
    return InvalidCheckpoint(f"{where}: {what}")
