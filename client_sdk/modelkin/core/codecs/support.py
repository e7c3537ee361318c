"""The native format of a support, ``application/vnd.modelkin.support``: its header and its layout.

``frames`` owns the zstd frame within, ``gaps`` the gap stream within that. Behind the gap stream of
an ordered support come its octaves, a byte each. A codec knows arrays and headers alone;
``Support`` is built from them by its own class.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from modelkin.core.codecs import gaps
from modelkin.core.codecs.checks import (
    CRC_SIZE,
    VERSION,
    Payload,
    check_crc,
    check_k,
    check_prefix,
    check_space,
    with_crc,
)
from modelkin.core.codecs.frames import compressor, encode_frame, read_frame
from modelkin.core.gaps import MAX_RANGES, NO_GAPS, Gaps, check_gaps
from modelkin.core.indices import MAX_PARAMETERS, IndexArray, index_dtype
from modelkin.core.octaves import Octaves, require_octaves
from modelkin.errors import InvalidSupport

__all__ = [
    "HEADER_BYTES",
    "SupportHeader",
    "declared_bytes",
    "declared_k",
    "declared_octaves",
    "declared_size",
    "decode",
    "encode",
    "max_payload_size",
    "pack_header",
]

_HEADER = struct.Struct("<4sBBHQQ32s")
HEADER_BYTES = _HEADER.size
_MAGIC = b"MKSP"
_GAP_STREAM = 1
_ORDERED = 2
"""The encoding of a gap stream with the octave of each index behind it."""
_HAS_GAPS = 1
"""The flag of a support that does not cover all parameters: its gaps follow the header."""
_RANGE_BYTES, _COUNT = 16, struct.Struct("<I")


class SupportHeader(NamedTuple):
    """The header's fields: M, K, the digest in its text form, ``sha256:...``, and the encoding."""

    num_parameters: int
    k: int
    digest: str
    ordered: bool
    gaps: Gaps = NO_GAPS

    @property
    def size(self) -> int:
        """The bytes of the header and of the gaps behind it."""
        ranges = len(self.gaps.ranges)
        return _HEADER.size + (_COUNT.size + _RANGE_BYTES * ranges if ranges else 0)


def encode(
    indices: IndexArray,
    num_parameters: int,
    octaves: Octaves | None = None,
    left_out: Gaps = NO_GAPS,
) -> bytes:
    """Encode valid indices: 56 bytes of header, the gap stream in a zstd frame, and a CRC-32.

    The ranges that the support does not cover stand behind the header, after their number.

    Args:
        indices: K of them.
        num_parameters: M.
        octaves: one for each index, where the support is ordered; else None.
        left_out: the parameters that it does not cover.
    """
    stream, k = gaps.encode(indices, num_parameters), indices.size
    digest = gaps.digest(stream, num_parameters, k, octaves, left_out)
    partial = bool(left_out)
    header = pack_header(num_parameters, k, digest, ordered=octaves is not None, partial=partial)
    if left_out:
        header += _COUNT.pack(len(left_out.ranges)) + left_out.to_bytes()
    if octaves is None:
        return with_crc(header + compressor().compress(stream.data))
    return with_crc(header, *encode_frame(stream, octaves))


def pack_header(
    num_parameters: int, k: int, digest: str, *, ordered: bool = False, partial: bool = False
) -> bytes:
    """The 56 bytes of header: M, K and the digest in its text form, as ``gaps.digest`` gives it."""
    raw = bytes.fromhex(digest.removeprefix("sha256:"))
    encoding = _ORDERED if ordered else _GAP_STREAM
    flags = _HAS_GAPS if partial else 0
    return _HEADER.pack(_MAGIC, VERSION, encoding, flags, num_parameters, k, raw)


def decode(
    data: Payload, *, num_parameters: int | None = None, max_k: int | None = None
) -> tuple[SupportHeader, IndexArray, Octaves | None]:
    """Decode and verify a payload: its header, K valid indices, and their octaves if it has them.

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
        SpaceMismatch: the payload has another M.
        PayloadTooLarge: K is above ``max_k``.
    """
    header = _read_header(data)
    m, k = header.num_parameters, header.k
    check_space(m, num_parameters, "support")
    check_k(k, max_k)
    plane = k if header.ordered else 0
    content = read_frame(
        memoryview(data)[header.size : -CRC_SIZE],
        header.size,
        k * (1 + gaps.low_bytes(m, k)) + plane,
        gaps.max_stream_size(m, k) + plane,
    )
    content_bytes = np.frombuffer(content, dtype=np.uint8)
    stream = content_bytes[: content_bytes.size - plane]
    indices, octaves = gaps.decode(stream, m, k), None
    if header.ordered:
        octaves = content_bytes[stream.size :].copy()  # not a view that keeps the stream alive
        require_octaves(octaves, k)
    check_gaps(header.gaps, indices, m, ordered=header.ordered)
    digest = gaps.digest(stream, m, k, octaves, header.gaps)
    if digest != header.digest:
        raise InvalidSupport(
            f"the content does not match its digest: bytes 24-55 say {header.digest}, the decoded "
            f"support has {digest}; its writer is at fault"
        )
    return header, indices, octaves


def declared_k(data: Payload) -> int:
    """The K that a header declares, not verified yet; 0 for a payload too short for a header."""
    return int(_HEADER.unpack_from(data)[5]) if len(data) >= _HEADER.size else 0


def declared_octaves(data: Payload) -> int:
    """How many octaves a header declares, not verified yet: K of an ordered support, else 0."""
    ordered = len(data) >= _HEADER.size and _HEADER.unpack_from(data)[2] == _ORDERED
    return declared_k(data) if ordered else 0


def declared_bytes(data: Payload) -> int:
    """The bytes of the indices that a header declares, and of their octaves, not verified yet."""
    if len(data) < _HEADER.size:
        return 0
    _, _, encoding, _, m, k, _ = _HEADER.unpack_from(data)
    width: int = index_dtype(m).itemsize + (encoding == _ORDERED)
    return int(k) * width


def max_payload_size(num_parameters: int, k: int | None = None, *, ordered: bool = True) -> int:
    """The most bytes of a payload of K indices; without K, of any support of M parameters.

    Most are those of K = M. zstd stores what it cannot compress in blocks, with some bytes each.
    """
    size = num_parameters if k is None else k
    content = gaps.max_stream_size(num_parameters, max(size, 1)) + (size if ordered else 0)
    ranges = _COUNT.size + _RANGE_BYTES * min(MAX_RANGES, num_parameters)
    return _HEADER.size + ranges + content + content // 128 + 1024 + CRC_SIZE


def declared_size(data: Payload) -> int:
    """The most bytes of a payload by its header, which is not verified yet."""
    _, _, encoding, _, m, k, _ = _HEADER.unpack_from(data)
    if not 1 <= k <= m:
        return _HEADER.size  # it is refused, whatever follows
    return max_payload_size(m, k, ordered=encoding == _ORDERED)


def _read_header(data: Payload) -> SupportHeader:
    if len(data) < _HEADER.size + CRC_SIZE:
        raise InvalidSupport(
            f"the payload ends after {len(data)} bytes, header and checksum alone take "
            f"{_HEADER.size + CRC_SIZE}"
        )
    magic, version, encoding, flags, m, k, digest = _HEADER.unpack_from(data)
    check_prefix(magic, _MAGIC, version, InvalidSupport)
    check_crc(data, InvalidSupport)
    if encoding not in (_GAP_STREAM, _ORDERED):
        raise InvalidSupport(f"encoding {encoding} (byte 5) is unknown, version 1 has 1 and 2")
    if flags & ~_HAS_GAPS:
        raise InvalidSupport(f"flags (bytes 6-7) are 0 or 1 in version 1, not {flags:#06x}")
    if not 1 <= k <= m <= MAX_PARAMETERS:
        raise InvalidSupport(f"bytes 8-23 declare M = {m} and K = {k}, not 1 <= K <= M <= 2^63 - 1")
    left_out = _read_gaps(data) if flags else NO_GAPS
    return SupportHeader(m, k, f"sha256:{digest.hex()}", encoding == _ORDERED, left_out)


def _read_gaps(data: Payload) -> Gaps:
    """The ranges behind the header, which says that there are some."""
    view = memoryview(data)[_HEADER.size : -CRC_SIZE]
    (count,) = _COUNT.unpack_from(view) if len(view) >= _COUNT.size else (0,)
    end = _COUNT.size + _RANGE_BYTES * count
    if not 1 <= count <= MAX_RANGES or end > len(view):
        raise InvalidSupport(
            f"bytes 56-59 declare {count} gaps, not 1 to {MAX_RANGES} that follow them"
        )
    return Gaps.from_bytes(view[_COUNT.size : end])
