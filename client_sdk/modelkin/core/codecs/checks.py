"""Checks and types that all codecs share."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidInput, PayloadTooLarge, SpaceMismatch

__all__ = [
    "CRC_SIZE",
    "VERSION",
    "Payload",
    "check_crc",
    "check_k",
    "check_prefix",
    "check_space",
    "little_endian",
    "with_crc",
]

CRC_SIZE = 4
"""Bytes of the CRC-32 at the end of every native format."""

_CRC = struct.Struct("<I")

Payload = bytes | bytearray | memoryview

VERSION = 1
"""The version of the native formats that this package writes and reads."""


def check_prefix(magic: bytes, expected: bytes, version: int, error: type[InvalidInput]) -> None:
    """Check the first five bytes of a native payload: its magic and its version."""
    if magic != expected:
        raise error(
            f"the payload starts with {magic!r}, not {expected!r}: it is of another format, "
            f"send it under its own media type"
        )
    if version != VERSION:
        raise error(
            f"version {version} (byte 4) is unknown, this modelkin reads version {VERSION}: "
            f"a newer one may read it"
        )


def with_crc(*parts: Payload) -> bytes:
    """The parts of a body followed by its CRC-32 (of zlib and gzip, RFC 1952), little-endian."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return b"".join((*parts, _CRC.pack(crc)))


def check_crc(data: Payload, error: type[InvalidInput]) -> None:
    """Check the CRC-32 at the end of a native payload, which detects every flipped bit.

    zstd's checksum and the digest cover only the content, and some bits of a zstd block can flip
    without changing it.
    """
    end = len(data) - CRC_SIZE
    if _CRC.unpack_from(data, end)[0] != zlib.crc32(memoryview(data)[:end]):
        raise error(
            f"the CRC-32 in the last four bytes does not match the {end} before them: truncated, "
            f"damaged, or followed by other bytes; send it again"
        )


def check_space(declared: int, expected: int | None, what: str) -> None:
    """Compare a payload's own M with the M of its destination; None accepts any."""
    if expected is not None and declared != expected:
        raise SpaceMismatch(
            f"the {what} is of {declared} parameters, {expected} are expected: it belongs to "
            f"another space"
        )


def check_k(k: int, max_k: int | None) -> None:
    """Compare a declared or counted K with the limit, before any index is materialised."""
    if max_k is not None and k > max_k:
        raise PayloadTooLarge(f"the support has {k} indices, at most {max_k} are accepted here")


def little_endian(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype in payloads; on little-endian machines the same, so that no copy is made."""
    return np.dtype(dtype).newbyteorder("<")
