"""The native format of a support, ``application/vnd.modelkin.support``.

Owns the header and the zstd frame; the gap stream within is ``modelkin.core.gaps``'s.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import zstandard

from modelkin.core import gaps
from modelkin.core.support import MAX_PARAMETERS, Support
from modelkin.errors import InvalidSupport
from modelkin.wire.checks import (
    CRC_SIZE,
    VERSION,
    Payload,
    check_crc,
    check_k,
    check_prefix,
    check_space,
    with_crc,
)

__all__ = [
    "MAX_WINDOW",
    "compressor",
    "declared_k",
    "decode_support",
    "encode_support",
    "pack_header",
]

MAX_WINDOW = 8 << 20
"""The largest zstd window, in bytes: what RFC 8878 (3.1.1.1.2) asks every decoder to support."""

_HEADER = struct.Struct("<4sBBHQQ32s")
_MAGIC = b"MKSP"
_GAP_STREAM = 1
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def encode_support(support: Support) -> bytes:
    """The native format: 56 bytes of header, the gap stream in a zstd frame, a CRC-32 of it all."""
    m, k = support.num_parameters, support.k
    stream = gaps.encode(support.indices, m)
    header = pack_header(m, k, gaps.digest(stream, m, k))
    return with_crc(header + compressor().compress(stream.data))


def pack_header(num_parameters: int, k: int, digest: str) -> bytes:
    """The 56 bytes of header: M, K and the digest in its text form, as ``gaps.digest`` gives it."""
    raw = bytes.fromhex(digest.removeprefix("sha256:"))
    return _HEADER.pack(_MAGIC, VERSION, _GAP_STREAM, 0, num_parameters, k, raw)


def compressor() -> zstandard.ZstdCompressor:
    """What makes the frame of a gap stream.

    zstd's level 1 is the measured choice: on gaps the higher levels are slower and no smaller, and
    the negative ones skip the entropy coding that does the work.
    """
    return zstandard.ZstdCompressor(level=1, write_checksum=True)


def decode_support(
    data: Payload, *, num_parameters: int | None = None, max_k: int | None = None
) -> Support:
    """A support from the native format.

    Memory grows with K as the header declares it, and ``max_k`` bounds K. A short payload can
    honestly declare a huge K (consecutive indices compress to nearly nothing), so leave ``max_k``
    out only for trusted writers.

    Args:
        data: the whole payload.
        num_parameters: the M it has to have; None takes the payload's own.
        max_k: the most indices to decode; None for no limit.

    Raises:
        InvalidSupport: not this format, another version, truncated, damaged, or followed by other
            bytes.
        SpaceMismatch: of another M.
        PayloadTooLarge: K is above ``max_k``.
    """
    header = _read_header(data)
    check_space(header.m, num_parameters, "support")
    check_k(header.k, max_k)
    content = _decompress(memoryview(data)[_HEADER.size : -CRC_SIZE], header.m, header.k)
    stream = np.frombuffer(content, dtype=np.uint8)
    indices = gaps.decode(stream, header.m, header.k)
    digest = gaps.digest(stream, header.m, header.k)
    if digest != header.digest:
        raise InvalidSupport(
            f"the content does not match its digest: bytes 24-55 say {header.digest}, the decoded "
            f"support has {digest}; its writer is at fault"
        )
    return Support(indices, header.m, digest=digest)  # verified: nobody need hash it again


def declared_k(data: Payload) -> int:
    """The K that a header says, believed by nobody yet; 0 of what is too short for one."""
    return int(_HEADER.unpack_from(data)[5]) if len(data) >= _HEADER.size else 0


class _Header(NamedTuple):
    """M, K, and the digest in its text form."""

    m: int
    k: int
    digest: str


def _read_header(data: Payload) -> _Header:
    if len(data) < _HEADER.size + CRC_SIZE:
        raise InvalidSupport(
            f"the payload ends after {len(data)} bytes, header and checksum alone take "
            f"{_HEADER.size + CRC_SIZE}"
        )
    magic, version, encoding, flags, m, k, digest = _HEADER.unpack_from(data)
    check_prefix(magic, _MAGIC, version, InvalidSupport)
    check_crc(data, InvalidSupport)
    if encoding != _GAP_STREAM:
        raise InvalidSupport(f"encoding {encoding} (byte 5) is unknown, version 1 has only 1")
    if flags:
        raise InvalidSupport(f"flags (bytes 6-7) must be zero in version 1, not {flags:#06x}")
    if not 1 <= k <= m <= MAX_PARAMETERS:
        raise InvalidSupport(f"bytes 8-23 declare M = {m} and K = {k}, not 1 <= K <= M <= 2^63 - 1")
    return _Header(m, k, f"sha256:{digest.hex()}")


def _decompress(frame: memoryview, m: int, k: int) -> bytes:
    """The gap stream out of its zstd frame (RFC 8878).

    zstandard heeds no output limit where the frame declares a size, so that size is first held
    against what M and K allow. It then allocates exactly that much, and refuses a frame that yields
    more or less, or that ends before its input does.
    """
    _check_frame(frame, k * (1 + gaps.low_bytes(m, k)), gaps.max_stream_size(m, k))
    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        return decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise InvalidSupport(
            f"the zstd frame from byte {_HEADER.size} on is truncated, damaged or followed by "
            f"another: {error}"
        ) from None


def _check_frame(frame: memoryview, least: int, most: int) -> None:
    """The frame's own header: it must declare a size between ``least`` and ``most`` bytes."""
    if frame[:4] != _ZSTD_MAGIC:  # a skippable frame has another magic
        raise InvalidSupport(f"no zstd frame starts at byte {_HEADER.size}")
    try:
        declared = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError as error:
        raise InvalidSupport(f"the zstd frame's header is truncated or damaged: {error}") from None
    if declared.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        raise InvalidSupport("the zstd frame must declare its content size, this one does not")
    if not least <= declared.content_size <= most:
        raise InvalidSupport(
            f"the zstd frame declares {declared.content_size} bytes, the gap stream of this M and "
            f"K has {least} to {most}"
        )
    if declared.window_size > MAX_WINDOW:
        raise InvalidSupport(
            f"the zstd frame wants a window of {declared.window_size} bytes, at most {MAX_WINDOW} "
            f"are allowed"
        )
    if declared.dict_id or not declared.has_checksum:
        raise InvalidSupport("the zstd frame must have a content checksum and need no dictionary")
