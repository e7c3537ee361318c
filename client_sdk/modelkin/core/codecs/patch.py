"""The native format of a patch, ``application/vnd.modelkin.delta``: indices added and removed.

Owns the header and where the two gap streams meet. Removed indices are written as their positions
in the support before, which every reader that applies the patch holds: among K of them a position
takes fewer bits than an index among M. ``modelkin.core.patch`` applies patches.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

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
from modelkin.core.codecs.frames import compressor, read_frame
from modelkin.core.indices import MAX_PARAMETERS, IndexArray, index_dtype
from modelkin.errors import InvalidSupport

__all__ = ["PatchHeader", "declared_added", "decode", "encode", "read_header"]

_HEADER = struct.Struct("<4sBBHQQQQQ32s32s")
_MAGIC = b"MKDL"
_GAP_STREAMS = 1


class PatchHeader(NamedTuple):
    """The header's fields.

    Attributes:
        num_parameters: M.
        k: K of the support after.
        added: how many indices it adds.
        removed: how many it removes.
        split: bytes of the gap stream of the added indices; that of the removed ones follows.
        digest_before: the digest of the support that it changes, in its text form.
        digest_after: ``sha256:`` and hex, of the support that the patch results in.
    """

    num_parameters: int
    k: int
    added: int
    removed: int
    split: int
    digest_before: str
    digest_after: str

    @property
    def k_before(self) -> int:
        """The K of the support that it changes."""
        return self.k - self.added + self.removed


def encode(
    before: IndexArray,
    added: IndexArray,
    removed: IndexArray,
    *,
    num_parameters: int,
    digest_before: str,
    digest_after: str,
) -> bytes:
    """Encode a patch: 112 bytes of header, two gap streams in a zstd frame, a CRC-32 of all of it.

    Args:
        before: the indices of the support that it changes.
        added: the new indices, none of them in ``before``; possibly none.
        removed: the indices to remove, each of them in ``before``; possibly none.
        num_parameters: M.
        digest_before: ``sha256:`` and hex, of the support that the patch changes.
        digest_after: ``sha256:`` and hex, of the support that the patch results in.
    """
    positions: Any = np.searchsorted(before, removed).astype(index_dtype(before.size))
    added_stream = _encode_stream(added, num_parameters)
    header = _HEADER.pack(
        _MAGIC,
        VERSION,
        _GAP_STREAMS,
        0,
        num_parameters,
        before.size + added.size - removed.size,
        added.size,
        removed.size,
        len(added_stream),
        _raw(digest_before),
        _raw(digest_after),
    )
    streams = added_stream + _encode_stream(positions, before.size)
    return with_crc(header + compressor().compress(streams))


def decode(
    data: Payload,
    header: PatchHeader,
    before: IndexArray,
    *,
    max_k: int | None = None,
) -> tuple[IndexArray, IndexArray]:
    """Decode the body of a payload: the added indices, and the removed ones.

    Memory grows with the K that the header declares, and ``max_k`` bounds it.

    Args:
        data: the whole payload.
        header: what :func:`read_header` read from it.
        before: the indices of the support that it changes.
        max_k: the most indices that the result may have; None for no limit.

    Raises:
        InvalidSupport: damaged, or not made for a support of ``before``'s size.
        PayloadTooLarge: the result's K is above ``max_k``.
    """
    if header.k_before != before.size:
        raise InvalidSupport(
            f"K, added and removed (bytes 16-39) say that the support before has "
            f"{header.k_before} indices, it has {before.size}"
        )
    check_k(header.k, max_k)
    m = header.num_parameters
    added, removed = _bounds(m, header.added), _bounds(header.k_before, header.removed)
    frame = memoryview(data)[_HEADER.size : -CRC_SIZE]
    content = read_frame(frame, _HEADER.size, added[0] + removed[0], added[1] + removed[1])
    stream = np.frombuffer(content, dtype=np.uint8)
    if header.split > stream.size:
        raise InvalidSupport(
            f"bytes 40-47 say that the added indices take {header.split} bytes, both streams have "
            f"{stream.size}"
        )
    new = _decode_stream("added", stream[: header.split], m, header.added)
    positions = _decode_stream("removed", stream[header.split :], header.k_before, header.removed)
    return new, before[positions]


def declared_added(data: Payload) -> int:
    """The number of added indices that a header declares, not verified yet; 0 without a header."""
    return int(_HEADER.unpack_from(data)[6]) if len(data) >= _HEADER.size else 0


def read_header(data: Payload, *, num_parameters: int) -> PatchHeader:
    """Read and check the header of a payload.

    Args:
        data: the whole payload.
        num_parameters: the M it has to have.

    Raises:
        InvalidSupport: not this format, another version, truncated, damaged, or followed by other
            bytes.
        SpaceMismatch: the payload has another M.
    """
    if len(data) < _HEADER.size + CRC_SIZE:
        raise InvalidSupport(
            f"the payload ends after {len(data)} bytes, header and checksum alone take "
            f"{_HEADER.size + CRC_SIZE}"
        )
    magic, version, encoding, flags, m, k, added, removed, split, before, after = (
        _HEADER.unpack_from(data)
    )
    check_prefix(magic, _MAGIC, version, InvalidSupport)
    check_crc(data, InvalidSupport)
    if encoding != _GAP_STREAMS or flags:
        raise InvalidSupport(
            f"encoding {encoding} (byte 5) with flags {flags:#06x} (bytes 6-7) is unknown: version "
            f"1 has encoding {_GAP_STREAMS} and no flags"
        )
    digests = f"sha256:{before.hex()}", f"sha256:{after.hex()}"
    header = PatchHeader(m, k, added, removed, split, *digests)
    if not (
        1 <= header.k <= m <= MAX_PARAMETERS
        and header.added <= header.k
        and header.removed <= header.k_before <= m
        and header.k_before >= 1
    ):
        raise InvalidSupport(
            f"bytes 8-39 declare M = {m}, K = {header.k}, {header.added} added and "
            f"{header.removed} removed indices: no support becomes another so"
        )
    check_space(m, num_parameters, "patch")
    return header


def _encode_stream(indices: IndexArray, num_parameters: int) -> bytes:
    """A gap stream; that of no index is empty."""
    return gaps.encode(indices, num_parameters).tobytes() if indices.size else b""


def _decode_stream(
    name: str, stream: npt.NDArray[np.uint8], num_parameters: int, count: int
) -> IndexArray:
    if count == 0:
        if stream.size:
            raise InvalidSupport(f"{name}: the stream of no index has {stream.size} bytes")
        none: IndexArray = np.empty(0, index_dtype(num_parameters))
        return none
    try:
        return gaps.decode(stream, num_parameters, count)
    except InvalidSupport as error:
        raise InvalidSupport(f"{name}: {error}") from None


def _bounds(num_parameters: int, count: int) -> tuple[int, int]:
    """The least and the most bytes of a gap stream."""
    if count == 0:
        return 0, 0
    low = gaps.low_bytes(num_parameters, count)
    return count * (1 + low), gaps.max_stream_size(num_parameters, count)


def _raw(digest: str) -> bytes:
    return bytes.fromhex(digest.removeprefix("sha256:"))
