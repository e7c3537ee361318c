"""The native format of a fingerprint, ``application/vnd.modelkin.fingerprint+zstd``.

Owns the header, the order of the columns within the zstd frame, their bytes and the checksums. The
header has the number of entries of each column. So the size of the content is known, and compared
with the limits, before anything is allocated. ``Fingerprint`` decides which values make one.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs.checks import (
    CRC_SIZE,
    VERSION,
    Payload,
    check_crc,
    check_prefix,
    with_crc,
)
from modelkin.core.codecs.frames import encode_frame, read_frame
from modelkin.errors import InvalidFingerprint

__all__ = [
    "AGAIN",
    "MAX_AXES",
    "MAX_KEYS",
    "MAX_NAME",
    "MAX_PAYLOAD_BYTES",
    "MAX_TENSORS",
    "SIGNATURE_BYTES",
    "TENSOR",
    "FingerprintArrays",
    "check_sizes",
    "content_bytes",
    "declared_digest",
    "decode",
    "digest",
    "encode",
    "refuse",
]

MAX_TENSORS: Final = 100_000
"""Tensors of a checkpoint; equal ones count, each by its name."""
MAX_KEYS: Final = 1 << 16
"""Sampled keys; one that several tensors have counts for each."""
MAX_NAME: Final = 500
"""Characters of a tensor's name."""
MAX_AXES: Final = 16
"""Axes of a tensor."""
MAX_CONTENT_BYTES: Final = 32 << 20
"""The columns, decompressed."""
SIGNATURE_BYTES: Final = 128
AGAIN: Final = "make the fingerprint again from its checkpoint"
"""What mends a payload that its writer got wrong."""

T = TypeVar("T", bound=np.generic)
Octets = npt.NDArray[np.uint8]
_START: Final = struct.Struct("<4sBBBB7I")
_DIGEST_BYTES: Final = 32
HEADER_BYTES: Final = _START.size + _DIGEST_BYTES
MAX_PAYLOAD_BYTES: Final = HEADER_BYTES + MAX_CONTENT_BYTES + (MAX_CONTENT_BYTES >> 7) + 1024
"""What zstd cannot compress it stores in blocks, with some bytes each."""
MAGIC: Final = b"MKFP"
_LINES1: Final = 1
"""The scheme of keys and signatures that ``modelkin.core.fingerprints`` makes."""
_MAX_SCALE: Final = 63
"""The greatest binary logarithm of a scale."""

TENSOR: Final = np.dtype(
    [
        ("names", "<u4"),
        ("axes", "u1"),
        ("reason", "u1"),
        ("signed", "u1"),
        ("zero", "u1"),
        ("shorter", "<u8"),
        ("longer", "<u8"),
    ]
)
"""What is said of a tensor at a fixed place: how many names and axes it has, why it has no lines
(0 where it has), whether a signature, and its lines as long as its shorter and its longer side."""


class FingerprintArrays(NamedTuple):
    """The columns of a payload.

    Attributes:
        scale: a power of two.
        tensors: shape ``(T,)``, of the dtype :data:`TENSOR`.
        names: of the tensors in their order, each with all of its names.
        sides: the shapes, one behind the other; uint64.
        signatures: of the tensors that have one, shape ``(S, 128)``, uint8.
        lines: the distinct lines of the checkpoint of each length that a tensor has, by ascending
            length; uint64.
        keys: ascending, shape ``(n,)``.
        owners: the number of the tensor of each, shape ``(n,)``.
        longer: whether the line of each is as long as the longer side of its tensor; False where
            its sides are equal; shape ``(n,)``.
    """

    scale: int
    tensors: npt.NDArray[Any]
    names: list[str]
    sides: npt.NDArray[np.uint64]
    signatures: Octets
    lines: npt.NDArray[np.uint64]
    keys: npt.NDArray[np.uint64]
    owners: npt.NDArray[np.uint32]
    longer: npt.NDArray[np.bool_]


class _Sizes(NamedTuple):
    """The entries of the columns, as the header has them."""

    tensors: int
    names: int
    text: int
    sides: int
    signatures: int
    lines: int
    keys: int

    @property
    def owner_bytes(self) -> int:
        """The bytes that tell the number of a tensor."""
        return ((self.tensors - 1).bit_length() + 7) // 8

    def of_columns(self) -> tuple[int, ...]:
        """The bytes of each column, in their order."""
        return (
            self.tensors * TENSOR.itemsize,
            2 * self.names,
            self.text,
            8 * self.sides,
            self.signatures * SIGNATURE_BYTES,
            8 * self.lines,
            *(self.keys,) * (8 + self.owner_bytes),
            (self.keys + 7) // 8,
        )


def encode(arrays: FingerprintArrays) -> bytes:
    """Encode valid columns: 68 bytes of header, the columns in a zstd frame, and a CRC-32.

    Each column begins a block of its own, since one code for names and random bytes fits neither.
    """
    start, parts = _start(arrays), _parts(arrays)
    return with_crc(start + _hashed(start, parts), *encode_frame(*parts))


def digest(arrays: FingerprintArrays) -> str:
    """``sha256:`` and the hexadecimal SHA-256 of the header before the digest, and the content."""
    return f"sha256:{_hashed(_start(arrays), _parts(arrays)).hex()}"


def check_sizes(arrays: FingerprintArrays) -> None:
    """Refuse columns that are too many or too long for the format.

    Raises:
        InvalidFingerprint: names the column, its size, and what to do.
    """
    _check_sizes(_sizes(arrays, sum(len(name.encode()) for name in arrays.names)))


def decode(data: Payload, *, max_tensors: int | None = None) -> FingerprintArrays:
    """Decode a payload; what the values are is not checked, but all that decides lengths is.

    Args:
        data: the whole payload, not trusted.
        max_tensors: the most tensors and names to accept; None for those of the format.

    Raises:
        InvalidFingerprint: not this format, of another version or scheme, too large, truncated,
            damaged, or followed by other bytes.
    """
    scale, sizes, declared = _read_header(data, max_tensors)
    size = sum(sizes.of_columns())
    frame = memoryview(data)[HEADER_BYTES:-CRC_SIZE]
    plain = read_frame(frame, HEADER_BYTES, size, size, InvalidFingerprint)
    content = np.frombuffer(plain, np.uint8)
    found = _hashed(data[: _START.size], [content])
    if found != declared:
        refuse(
            "digest",
            f"bytes {_START.size}-{HEADER_BYTES - 1} say sha256:{declared.hex()}, and the content "
            f"has sha256:{found.hex()}; its writer is at fault: {AGAIN}",
        )
    return _columns(scale, sizes, content)


def content_bytes(data: Payload) -> int:
    """The bytes that a payload declares to have when it is decompressed.

    Raises:
        InvalidFingerprint: its header is none, or declares too much.
    """
    try:
        _, sizes, _ = _read_header(data, None, is_whole=True)
    except InvalidFingerprint:
        _, sizes, _ = _read_header(data, None)  # where the checksum is wrong, it says that
    return sum(sizes.of_columns())


def declared_digest(data: Payload) -> str:
    """The digest that a payload declares, which is that of its content where it can be decoded."""
    return f"sha256:{bytes(data[_START.size : HEADER_BYTES]).hex()}"


def _read_header(
    data: Payload, max_tensors: int | None, *, is_whole: bool = False
) -> tuple[int, _Sizes, bytes]:
    if len(data) < HEADER_BYTES + CRC_SIZE:
        if len(data) >= len(MAGIC):
            check_prefix(bytes(data[:4]), MAGIC, VERSION, InvalidFingerprint)
        raise InvalidFingerprint(
            f"the payload ends after {len(data)} bytes, header and checksum alone take "
            f"{HEADER_BYTES + CRC_SIZE}: send it again"
        )
    magic, version, scheme, scale, flags, *entries = _START.unpack_from(data)
    check_prefix(magic, MAGIC, version, InvalidFingerprint)
    if len(data) > MAX_PAYLOAD_BYTES:
        raise InvalidFingerprint(
            f"the payload has more than {MAX_PAYLOAD_BYTES:,} bytes, which no fingerprint has: "
            f"{AGAIN}"
        )
    if not is_whole:
        check_crc(data, InvalidFingerprint)
    if scheme != _LINES1:
        refuse(
            "scheme",
            f"{scheme} (byte 5) is unknown, version 1 has 1, lines1, and keys of two schemes are "
            f"never equal: {AGAIN}",
        )
    if scale > _MAX_SCALE:
        refuse(
            "scale",
            f"its binary logarithm (byte 6) is 0 to {_MAX_SCALE}, not {scale}: {AGAIN}",
        )
    if flags:
        refuse("flags", f"byte 7 must be zero in version 1, not {flags:#04x}: {AGAIN}")
    sizes = _Sizes(*entries)
    _check_sizes(sizes, max_tensors)
    return 1 << scale, sizes, bytes(data[_START.size : HEADER_BYTES])


def _check_sizes(sizes: _Sizes, max_tensors: int | None = None) -> None:
    tensors, names = sizes.tensors, sizes.names
    most_tensors = MAX_TENSORS if max_tensors is None else min(max_tensors, MAX_TENSORS)
    parts = "make a fingerprint of each of its parts"
    for field, size, least, most, remedy in (
        ("tensors", tensors, 1, most_tensors, parts),
        ("names", names, tensors, most_tensors, parts),
        ("text", sizes.text, names, 4 * MAX_NAME * names, "give the tensors shorter names"),
        ("sides", sizes.sides, 0, MAX_AXES * tensors, "store the tensors with fewer axes"),
        ("signatures", sizes.signatures, 0, tensors, AGAIN),
        ("lines", sizes.lines, 0, 2 * tensors, AGAIN),
        ("keys", sizes.keys, 0, MAX_KEYS, "take a coarser scale, by Fingerprint.at"),
    ):
        if not least <= size <= most:
            refuse(
                field,
                f"this fingerprint has {size:,}, and {least:,} to {most:,} are allowed: {remedy}",
            )
    content = sum(sizes.of_columns())
    if content > MAX_CONTENT_BYTES:
        refuse(
            "text",
            f"names of {sizes.text:,} bytes make a content of {content:,}, at most "
            f"{MAX_CONTENT_BYTES:,} are allowed: give the tensors shorter names, or {parts}",
        )


def _columns(scale: int, sizes: _Sizes, content: Octets) -> FingerprintArrays:
    ends = np.cumsum(sizes.of_columns())
    table, lengths, text, sides, signatures, lines = np.split(content[: ends[5]], ends[:5])
    tensors = table.view(TENSOR)
    _check_table(tensors, sizes)
    planes = content[ends[5] : ends[-2]].reshape(8 + sizes.owner_bytes, sizes.keys)
    longer = np.unpackbits(content[ends[-2] :], bitorder="little").view(np.bool_)
    if longer[sizes.keys :].any():
        refuse("longer", f"a bit behind that of the last key is set: {AGAIN}")
    owners = _from_planes(planes[8:], 4, np.uint32)
    if sizes.keys and int(owners.max()) >= sizes.tensors:
        refuse("owners", f"a key is of tensor {owners.max()} of {sizes.tensors}, from 0: {AGAIN}")
    keys = np.cumsum(_from_planes(planes[:8], 8, np.uint64), dtype=np.uint64)
    if (keys[1:] < keys[:-1]).any():
        refuse("keys", f"they do not ascend, since one is beyond 2^64: {AGAIN}")
    return FingerprintArrays(
        scale,
        tensors,
        _names(lengths.view("<u2"), text.tobytes()),
        sides.view("<u8").astype(np.uint64),
        signatures.reshape(-1, SIGNATURE_BYTES),
        lines.view("<u8").astype(np.uint64),
        keys,
        owners,
        longer[: sizes.keys],
    )


def _check_table(tensors: npt.NDArray[Any], sizes: _Sizes) -> None:
    for field, column, expected in (
        ("names", "names", sizes.names),
        ("sides", "axes", sizes.sides),
        ("signatures", "signed", sizes.signatures),
    ):
        found = int(tensors[column].sum(dtype=np.uint64))
        if found != expected:
            refuse(field, f"the tensors have {found:,}, and the header says {expected:,}: {AGAIN}")
    for field, wrong in (
        ("names", tensors["names"] == 0),
        ("signatures", tensors["signed"] > 1),
        ("zero", tensors["zero"] > 0),
    ):
        if wrong.any():
            at = int(wrong.argmax())
            refuse(f"tensors[{at}].{field}", f"it is out of its range: {AGAIN}")


def _names(lengths: npt.NDArray[Any], text: bytes) -> list[str]:
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    if ends[-1] != len(text):
        refuse("names", f"they have {ends[-1]:,} bytes, and the header says {len(text):,}: {AGAIN}")
    try:
        return [text[a:b].decode() for a, b in zip([0, *ends], ends, strict=False)]
    except UnicodeDecodeError as error:
        refuse("names", f"one is not UTF-8 ({error.reason}): {AGAIN}")


def refuse(field: str, problem: str) -> NoReturn:
    """Raise the error of a field.

    Raises:
        InvalidFingerprint: always.
    """
    raise InvalidFingerprint(f"{field}: {problem}", field=field) from None


def _start(arrays: FingerprintArrays) -> bytes:
    sizes = _sizes(arrays, sum(len(name.encode()) for name in arrays.names))
    return _START.pack(MAGIC, VERSION, _LINES1, arrays.scale.bit_length() - 1, 0, *sizes)


def _sizes(arrays: FingerprintArrays, text: int) -> _Sizes:
    return _Sizes(
        arrays.tensors.size,
        len(arrays.names),
        text,
        arrays.sides.size,
        len(arrays.signatures),
        arrays.lines.size,
        arrays.keys.size,
    )


def _parts(arrays: FingerprintArrays) -> list[Octets]:
    """The bytes of each column, in their order."""
    names = [name.encode() for name in arrays.names]
    return [
        *(
            np.frombuffer(column.tobytes(), np.uint8)
            for column in (
                arrays.tensors,
                np.array([len(name) for name in names], "<u2"),
                np.frombuffer(b"".join(names), np.uint8),
                arrays.sides.astype("<u8"),
                arrays.signatures,
                arrays.lines.astype("<u8"),
            )
        ),
        *_planes(np.diff(arrays.keys, prepend=np.uint64(0)), 8),
        *_planes(arrays.owners.astype(np.uint64), _sizes(arrays, 0).owner_bytes),
        np.packbits(arrays.longer, bitorder="little"),
    ]


def _planes(values: npt.NDArray[np.uint64], width: int) -> list[Octets]:
    """The lowest byte of each value, then the second lowest of each, and so on."""
    digits = values.astype("<u8").view(np.uint8).reshape(-1, 8)
    return [digits[:, place] for place in range(width)]


def _from_planes(planes: Octets, width: int, dtype: type[T]) -> npt.NDArray[T]:
    """The values of ``width`` bytes of which planes have the lowest ones."""
    digits = np.zeros((planes.shape[1], width), np.uint8)
    digits[:, : len(planes)] = planes.T
    return digits.view(f"<u{width}").ravel().astype(dtype, copy=False)


def _hashed(start: Payload, parts: Iterable[Octets]) -> bytes:
    state = hashlib.sha256(start)
    for part in parts:
        state.update(np.ascontiguousarray(part).data)
    return state.digest()
