"""The native format of a catalogue of bases, ``application/vnd.modelkin.catalogue``.

Owns the header, the table, the texts, the finding keys and the digest that binds them. All of these
stand before the fingerprints, so that a reader who looks up keys reads a fifth of the file. What
the fingerprints hold is bound by their own digests, which the table has.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs.checks import VERSION, Payload, check_prefix
from modelkin.errors import InvalidCatalogue

__all__ = [
    "AGAIN",
    "BASE",
    "HEADER_BYTES",
    "MAGIC",
    "MAX_BASES",
    "MAX_FINDING_KEYS",
    "MAX_PAYLOAD_BYTES",
    "MAX_TEXT_BYTES",
    "UNKNOWN_DATE",
    "Head",
    "Sizes",
    "decode_head",
    "digest_of",
    "encode_head",
    "read_sizes",
    "refuse",
]

MAX_BASES: Final = 100_000
MAX_TEXT_BYTES: Final = 16_384
"""What is said of a base."""
MAX_FINDING_KEYS: Final = 1_023
"""The finding keys of a base."""
MAX_PAYLOAD_BYTES: Final = 4 << 20
"""The fingerprint of a base."""
UNKNOWN_DATE: Final = -(1 << 63)
AGAIN: Final = "build the catalogue again, or get it again"
"""What mends a file that its writer got wrong, or that a transfer has damaged."""

_START: Final = struct.Struct("<4sBBHIIQQ")
_DIGEST_BYTES: Final = 32
HEADER_BYTES: Final = _START.size + _DIGEST_BYTES
MAGIC: Final = b"MKCT"
_LINES1: Final = 1

BASE: Final = np.dtype(
    [
        ("digest", "u1", (_DIGEST_BYTES,)),
        ("payload", "<u4"),
        ("keys", "<u4"),
        ("text", "<u4"),
        ("zero", "<u4"),
        ("parameters", "<u8"),
        ("file_bytes", "<u8"),
        ("published", "<i8"),
    ]
)
"""What is said of a base at a fixed place: the digest and the bytes of its fingerprint, how many
finding keys it has, the bytes of its text, its parameters, the bytes of its files (0 where they are
unknown), and when it was published, in seconds since 1970."""


class Sizes(NamedTuple):
    """What the header says of the file.

    Attributes:
        bases: how many there are.
        text: the bytes of all texts.
        keys: the finding keys of all bases.
        payloads: the bytes of all fingerprints.
    """

    bases: int
    text: int
    keys: int
    payloads: int

    @property
    def head(self) -> int:
        """The bytes before the first fingerprint."""
        return HEADER_BYTES + BASE.itemsize * self.bases + self.text + 12 * self.keys

    @property
    def whole(self) -> int:
        """The bytes of the file."""
        return self.head + self.payloads


class Head(NamedTuple):
    """All that stands before the fingerprints.

    Attributes:
        table: shape ``(n,)``, of the dtype :data:`BASE`.
        texts: of each base, in the order of the table.
        keys: the finding keys of all bases, ascending, shape ``(k,)``.
        owners: the number of the base of each, ascending among equal keys, shape ``(k,)``.
    """

    table: npt.NDArray[Any]
    texts: list[bytes]
    keys: npt.NDArray[np.uint64]
    owners: npt.NDArray[np.uint32]


def encode_head(head: Head) -> bytes:
    """The header and all that stands before the fingerprints."""
    parts = [
        head.table.tobytes(),
        *head.texts,
        head.keys.astype("<u8").tobytes(),
        head.owners.astype("<u4").tobytes(),
    ]
    start = _START.pack(
        MAGIC,
        VERSION,
        _LINES1,
        0,
        head.table.size,
        sum(map(len, head.texts)),
        head.keys.size,
        int(head.table["payload"].sum(dtype=np.uint64)),
    )
    return b"".join([start, _hashed(start, parts), *parts])


def digest_of(head: Payload) -> str:
    """``sha256:`` and the digest that a header states, in hexadecimal digits."""
    return f"sha256:{bytes(head[_START.size : HEADER_BYTES]).hex()}"


def read_sizes(data: Payload, whole: int) -> Sizes:
    """What a header declares, compared with the limits and with the size of its file.

    Args:
        data: the first bytes of the file, not trusted.
        whole: how many it has.

    Raises:
        InvalidCatalogue: not this format, another version or scheme, more than there may be, or
            another size than that of the file.
    """
    if len(data) < HEADER_BYTES:
        if len(data) >= len(MAGIC) + 1:
            check_prefix(bytes(data[:4]), MAGIC, data[4], InvalidCatalogue)
        raise InvalidCatalogue(
            f"the file ends after {len(data)} bytes, the header alone takes {HEADER_BYTES}: {AGAIN}"
        )
    magic, version, scheme, flags, *entries = _START.unpack_from(data)
    check_prefix(magic, MAGIC, version, InvalidCatalogue)
    if scheme != _LINES1:
        refuse(
            "scheme",
            f"{scheme} (byte 5) is unknown, version 1 has 1, lines1, and keys of two schemes are "
            f"never equal: {AGAIN}",
        )
    if flags:
        refuse("flags", f"bytes 6 and 7 must be zero in version 1, not {flags:#06x}: {AGAIN}")
    sizes = Sizes(*entries)
    bases = sizes.bases
    for field, size, least, most in (
        ("bases", bases, 1, MAX_BASES),
        ("text", sizes.text, bases, MAX_TEXT_BYTES * bases),
        ("keys", sizes.keys, 0, MAX_FINDING_KEYS * bases),
        ("payloads", sizes.payloads, bases, MAX_PAYLOAD_BYTES * bases),
    ):
        if not least <= size <= most:
            refuse(field, f"there are {size:,}, and {least:,} to {most:,} are allowed: {AGAIN}")
    if sizes.whole != whole:
        raise InvalidCatalogue(
            f"the file has {whole:,} bytes, and its header says {sizes.whole:,}: it is truncated, "
            f"or followed by other bytes; {AGAIN}"
        )
    return sizes


def decode_head(data: Payload, sizes: Sizes) -> Head:
    """Decode all that stands before the fingerprints; what the texts say is not checked.

    Args:
        data: so many bytes as ``sizes.head``, not trusted.
        sizes: what the header says.

    Raises:
        InvalidCatalogue: damaged, or sizes that do not fit each other.
    """
    if len(data) != sizes.head:
        raise InvalidCatalogue(f"the file ends after {len(data):,} bytes: {AGAIN}")
    found = _hashed(data[: _START.size], [memoryview(data)[HEADER_BYTES:]])
    if found != bytes(data[_START.size : HEADER_BYTES]):
        refuse(
            "digest",
            f"bytes {_START.size}-{HEADER_BYTES - 1} say {digest_of(data)}, and the content has "
            f"sha256:{found.hex()}: it is damaged, or its writer is at fault; {AGAIN}",
        )
    table = np.frombuffer(data, BASE, sizes.bases, HEADER_BYTES)
    _check_table(table, sizes)
    at = HEADER_BYTES + table.nbytes
    ends = (at + np.cumsum(table["text"], dtype=np.int64)).tolist()
    texts = [bytes(data[a:b]) for a, b in zip([at, *ends], ends, strict=False)]
    at += sizes.text
    keys = np.frombuffer(data, "<u8", sizes.keys, at).astype(np.uint64)
    owners = np.frombuffer(data, "<u4", sizes.keys, at + 8 * sizes.keys).astype(np.uint32)
    _check_keys(table, keys, owners)
    return Head(table, texts, keys, owners)


def refuse(field: str, problem: str) -> NoReturn:
    """Raise the error of a field.

    Raises:
        InvalidCatalogue: always.
    """
    raise InvalidCatalogue(f"{field}: {problem}", field=field) from None


def _check_table(table: npt.NDArray[Any], sizes: Sizes) -> None:
    for field, most in (
        ("payload", MAX_PAYLOAD_BYTES),
        ("keys", MAX_FINDING_KEYS),
        ("text", MAX_TEXT_BYTES),
        ("zero", 0),
    ):
        wrong = table[field] > most
        if wrong.any():
            at = int(wrong.argmax())
            refuse(
                f"bases[{at}].{field}",
                f"{table[field][at]:,} is more than the {most:,} that are allowed: {AGAIN}",
            )
    for field, expected in (
        ("payload", sizes.payloads),
        ("keys", sizes.keys),
        ("text", sizes.text),
    ):
        total = int(table[field].sum(dtype=np.uint64))
        if total != expected:
            refuse(field, f"the bases have {total:,}, and the header says {expected:,}: {AGAIN}")


def _check_keys(
    table: npt.NDArray[Any], keys: npt.NDArray[np.uint64], owners: npt.NDArray[np.uint32]
) -> None:
    wrong = keys[1:] < keys[:-1]
    wrong |= (keys[1:] == keys[:-1]) & (owners[1:] <= owners[:-1])
    if wrong.any():
        at = int(wrong.argmax()) + 1
        refuse(f"keys[{at}]", f"{keys[at]} of base {owners[at]} stands behind a later one: {AGAIN}")
    if owners.size and int(owners.max()) >= table.size:
        refuse("owners", f"a key is of base {owners.max()} of {table.size}, from 0: {AGAIN}")
    held = np.bincount(owners, minlength=table.size)
    if (held != table["keys"]).any():
        at = int((held != table["keys"]).argmax())
        refuse(
            f"bases[{at}].keys",
            f"it has {held[at]:,} finding keys, and the table says {table['keys'][at]:,}: {AGAIN}",
        )


def _hashed(start: Payload, parts: Iterable[Payload]) -> bytes:
    state = hashlib.sha256(start)
    for part in parts:
        state.update(part)
    return state.digest()
