"""The native format of a coordinate sketch, ``application/vnd.modelkin.sketch``.

Owns the header, the order of the bytes and the checksum; which bits make a sketch is ``Sketch``'s
to judge.
"""

from __future__ import annotations

import struct

import numpy as np

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
from modelkin.core.sketching.sketch import MAX_SIZE, Sketch
from modelkin.errors import InvalidParameter, InvalidSignature

__all__ = ["SKETCH", "decode_sketch", "encode_sketch"]

SKETCH = "application/vnd.modelkin.sketch"

_HEADER = struct.Struct("<4sBBHIIQQ")
_MAGIC = b"MKSK"
_SAMPLE = 1
"""One coordinate a stretch, as ``modelkin.core.sketching.sketch`` describes it."""


def encode_sketch(sketch: Sketch) -> bytes:
    """The native format: 32 bytes of header, the bits, and a CRC-32 of all of it."""
    header = _HEADER.pack(
        _MAGIC,
        VERSION,
        _SAMPLE,
        0,
        sketch.size,
        sketch.seed,
        sketch.num_parameters,
        sketch.support_size,
    )
    words = sketch.words
    return with_crc(header + words.astype(little_endian(words.dtype), copy=False).tobytes())


def decode_sketch(data: Payload, *, num_parameters: int | None = None) -> Sketch:
    """A sketch from the native format.

    Args:
        data: the whole payload.
        num_parameters: the M it has to have; None takes the payload's own.

    Raises:
        InvalidSignature: not this format, another version, truncated, damaged, followed by other
            bytes, or bits that no support of its K has.
        SpaceMismatch: of another M.
    """
    size, seed, m, k = _read_header(data)
    check_space(m, num_parameters, "sketch")
    words = np.frombuffer(data, little_endian(np.uint64), size // 64, _HEADER.size)
    try:
        return Sketch.from_words(
            words.astype(np.uint64), num_parameters=m, support_size=k, seed=seed
        )
    except InvalidParameter as error:
        raise InvalidSignature(str(error), field=error.field) from None


def _read_header(data: Payload) -> tuple[int, int, int, int]:
    """Size, seed, M and K of a payload that is as long as they say."""
    if len(data) < _HEADER.size + CRC_SIZE:
        raise InvalidSignature(
            f"the payload ends after {len(data)} bytes, header and checksum alone take "
            f"{_HEADER.size + CRC_SIZE}"
        )
    magic, version, sample, flags, size, seed, m, k = _HEADER.unpack_from(data)
    check_prefix(magic, _MAGIC, version, InvalidSignature)
    check_crc(data, InvalidSignature)
    if sample != _SAMPLE or flags:
        raise InvalidSignature(
            f"sample {sample} (byte 5) with flags {flags:#06x} (bytes 6-7) is unknown: version 1 "
            f"has sample {_SAMPLE} and no flags"
        )
    if size % 64 or not 64 <= size <= MAX_SIZE:
        raise InvalidSignature(
            f"the size (bytes 8-11) must be a multiple of 64 from 64 to {MAX_SIZE}, it is {size}"
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
    return size, seed, m, k
