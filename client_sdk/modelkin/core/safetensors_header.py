"""The header of a safetensors file as a value: parsed, checked for consistency, and made.

Source: the format's description (https://github.com/huggingface/safetensors#format): 8 bytes of
length, little-endian, that many bytes of JSON, then the tensors' bytes, without gaps. It reads no
file and no tensor, and allocates nothing that a header declares.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NoReturn, Protocol

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


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor as a header declares it: its bytes are ``begin`` to ``end`` of the file."""

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
        InvalidCheckpoint: the header is inconsistent.
    """
    begin = LENGTH_BYTES + len(header)
    fields = _load(header, where)
    metadata = fields.pop("__metadata__", None)
    if metadata is not None and not _is_text_map(metadata):
        raise bad_checkpoint(where, "its __metadata__ is not a map of strings")
    entries = [_entry(name, value, begin, where) for name, value in fields.items()]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
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


def length_problem(size: int, length: int) -> str:
    """Say why a file of ``size`` bytes cannot begin with 8 that declare ``length``."""
    if size < LENGTH_BYTES + 2:
        return f"it has {size} bytes, a safetensors file has at least {LENGTH_BYTES + 2}"
    first = length.to_bytes(LENGTH_BYTES, "little")
    pickled = first.startswith(b"\x80") and length > MAX_HEADER_BYTES
    if pickled or first.startswith(b"PK\x03\x04"):
        return (
            "it is a zip archive or a pickle, as torch.save writes it, and a pickle may run "
            "whatever its maker wants: save the model by safetensors.torch.save_file"
        )
    if length > MAX_HEADER_BYTES:
        return (
            f"its first 8 bytes declare a header of {length} bytes, more than the format's "
            f"{MAX_HEADER_BYTES}: it is not a safetensors file"
        )
    return (
        f"its first 8 bytes declare a header of {length} bytes, {size - LENGTH_BYTES} follow: it "
        f"is truncated, or not a safetensors file"
    )


def _load(header: bytes, where: str) -> dict[str, Any]:
    if header[:1] != b"{":
        raise bad_checkpoint(
            where, "its header does not begin with '{': it is not a safetensors file"
        )
    try:
        # Decoded here, since json.loads also accepts UTF-16 and a byte order mark.
        fields = json.loads(
            header.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise bad_checkpoint(where, f"its header is not valid JSON: {error}") from None
    if not isinstance(fields, dict):  # unreachable behind '{', and mypy's proof of it
        raise bad_checkpoint(where, "its header is not a JSON object")
    return fields


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        repeated, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the name {quote(repeated)} is repeated")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


def _entry(name: str, value: Any, begin: int, where: str) -> TensorEntry:
    if not isinstance(value, dict) or value.keys() != set(_KEYS):
        raise bad_checkpoint(where, f"tensor {quote(name)} is not described by {', '.join(_KEYS)}")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise bad_checkpoint(
            where, f"tensor {quote(name)} has the dtype {quote(dtype)}, unknown to this modelkin"
        )
    if not _are_counts(shape):
        raise bad_checkpoint(where, f"tensor {quote(name)} has no list of counts as its shape")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise bad_checkpoint(where, f"tensor {quote(name)} has no ascending pair as data_offsets")
    bits = _product(shape) * BITS[dtype]
    if bits != 8 * (offsets[1] - offsets[0]):
        raise bad_checkpoint(
            where,
            f"tensor {quote(name)}, {dtype} of shape {quote(shape)}, takes {bits / 8:.15g} "
            f"bytes, its data_offsets span {offsets[1] - offsets[0]}",
        )
    return TensorEntry(name, dtype, tuple(shape), begin + offsets[0], begin + offsets[1])


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v <= _MAX_COUNT for v in value)


def _product(shape: list[int]) -> int:
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
