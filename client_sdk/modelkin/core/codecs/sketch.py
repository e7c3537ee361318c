"""The native format of a coordinate sketch, ``application/vnd.modelkin.sketch``.

Owns the header, the order of the bytes and the checksum. ``Sketch`` decides which bits make a
sketch.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs.checks import (
    CRC_SIZE,
    VERSION,
    Payload,
    check_crc,
    check_prefix,
    check_space,
    little_endian,
    with_crc,
)
from modelkin.core.indices import MAX_PARAMETERS
from modelkin.errors import InvalidSignature

__all__ = ["SketchHeader", "decode", "encode"]

_HEADER = struct.Struct("<4sBBHIIQQ")
_MAGIC = b"MKSK"
_STRATIFIED = 1
"""The sampling of one coordinate a stretch, which ``modelkin.core.sketching.sketch`` describes."""


class SketchHeader(NamedTuple):
    """The header's fields: the sample's size and seed, M and K."""

    size: int
    seed: int
    num_parameters: int
    support_size: int


def encode(header: SketchHeader, words: npt.NDArray[np.uint64]) -> bytes:
    """Encode ``size / 64`` words: 32 bytes of header, the bits, and a CRC-32 of all of it."""
    packed = _HEADER.pack(_MAGIC, VERSION, _STRATIFIED, 0, *header)
    return with_crc(packed + words.astype(little_endian(words.dtype), copy=False).tobytes())


def decode(
    data: Payload, *, max_size: int, num_parameters: int | None = None
) -> tuple[SketchHeader, npt.NDArray[np.uint64]]:
    """Decode a payload: its header, and ``size / 64`` words.

    Args:
        data: the whole payload.
        max_size: the most coordinates to accept.
        num_parameters: the M it has to have; None takes the payload's own.

    Raises:
        InvalidSignature: not this format, another version, truncated, damaged, or followed by other
            bytes.
        SpaceMismatch: the payload has another M.
    """
    header = _read_header(data, max_size)
    check_space(header.num_parameters, num_parameters, "sketch")
    words = np.frombuffer(data, little_endian(np.uint64), header.size // 64, _HEADER.size)
    return header, words.astype(np.uint64)


def _read_header(data: Payload, max_size: int) -> SketchHeader:
    """The header of a payload that is as long as the header says."""
    if len(data) < _HEADER.size + CRC_SIZE:
        raise InvalidSignature(
            f"the payload ends after {len(data)} bytes, header and checksum alone take "
            f"{_HEADER.size + CRC_SIZE}"
        )
    magic, version, sample, flags, size, seed, m, k = _HEADER.unpack_from(data)
    check_prefix(magic, _MAGIC, version, InvalidSignature)
    check_crc(data, InvalidSignature)
    if sample != _STRATIFIED or flags:
        raise InvalidSignature(
            f"sample {sample} (byte 5) with flags {flags:#06x} (bytes 6-7) is unknown: version 1 "
            f"has sample {_STRATIFIED} and no flags"
        )
    if size % 64 or not 64 <= size <= max_size:
        raise InvalidSignature(
            f"the size (bytes 8-11) must be a multiple of 64 from 64 to {max_size}, it is {size}"
        )
    if len(data) != _HEADER.size + size // 8 + CRC_SIZE:
        raise InvalidSignature(
            f"{size} coordinates make a payload of {_HEADER.size + size // 8 + CRC_SIZE} bytes, "
            f"this one has {len(data)}"
        )
    if not 1 <= k <= m <= MAX_PARAMETERS:
        raise InvalidSignature(
            f"bytes 16-31 declare M = {m} and K = {k}, not 1 <= K <= M <= 2^63 - 1"
        )
    return SketchHeader(size, seed, m, k)
