"""The native format of a delta, ``application/vnd.modelkin.delta``: one support made of another.

Owns the header and where the two gap streams meet. Indices that go are written as their places in
the support before, which whoever applies the delta has: among K of them a place takes fewer bits
than an index among M. Applying is ``modelkin.core.delta``'s.
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
from modelkin.core.delta import Delta
from modelkin.core.indices import MAX_PARAMETERS, IndexArray, index_dtype
from modelkin.core.support import Support
from modelkin.errors import DeltaMismatch, InvalidSupport

__all__ = ["DELTA", "declared_added", "decode_delta", "encode_delta"]

DELTA = "application/vnd.modelkin.delta"

_HEADER = struct.Struct("<4sBBHQQQQQ32s32s")
_MAGIC = b"MKDL"
_GAP_STREAMS = 1


class _Header(NamedTuple):
    """The sizes, the bytes of the stream of added indices, and both digests in their text form."""

    m: int
    k: int
    added: int
    removed: int
    split: int
    before: str
    after: str

    @property
    def k_before(self) -> int:
        """The K of the support that it changes."""
        return self.k - self.added + self.removed


def encode_delta(before: Support, after: Support) -> bytes:
    """The native format: 112 bytes of header, two gap streams in a zstd frame, a CRC-32 of it all.

    Raises:
        SpaceMismatch: they are of different numbers of parameters.
    """
    delta = Delta.between(before, after)
    places: Any = np.searchsorted(before.indices, delta.removed).astype(index_dtype(before.k))
    added = _encode(delta.added, after.num_parameters)
    removed = _encode(places, before.k)
    header = _HEADER.pack(
        _MAGIC,
        VERSION,
        _GAP_STREAMS,
        0,
        after.num_parameters,
        after.k,
        delta.added.size,
        delta.removed.size,
        len(added),
        _raw(before.digest),
        _raw(after.digest),
    )
    return with_crc(header + compressor().compress(added + removed))


def decode_delta(data: Payload, before: Support, *, max_k: int | None = None) -> Delta:
    """A delta from the native format, ready to be applied to ``before``.

    Memory grows with the K that the header declares, and ``max_k`` bounds it.

    Args:
        data: the whole payload.
        before: the support that it is to change.
        max_k: the most indices that the result may have; None for no limit.

    Raises:
        InvalidSupport: not this format, another version, truncated, damaged, or followed by other
            bytes.
        SpaceMismatch: of another M.
        DeltaMismatch: it changes another support.
        PayloadTooLarge: the result's K is above ``max_k``.
    """
    header = _read_header(data)
    check_space(header.m, before.num_parameters, "delta")
    if header.before != before.digest:
        raise DeltaMismatch(
            f"the delta changes {header.before}, and the support is {before.digest}: make one of "
            f"that, or send the support whole"
        )
    if header.k_before != before.k:
        raise InvalidSupport(
            f"K, added and removed (bytes 16-39) say that the support before has "
            f"{header.k_before} indices, it has {before.k}"
        )
    check_k(header.k, max_k)
    added, removed = _bounds(header.m, header.added), _bounds(header.k_before, header.removed)
    frame = memoryview(data)[_HEADER.size : -CRC_SIZE]
    content = read_frame(frame, _HEADER.size, added[0] + removed[0], added[1] + removed[1])
    stream = np.frombuffer(content, dtype=np.uint8)
    if header.split > stream.size:
        raise InvalidSupport(
            f"bytes 40-47 say that the added indices take {header.split} bytes, both streams have "
            f"{stream.size}"
        )
    new = _decode("added", stream[: header.split], header.m, header.added)
    places = _decode("removed", stream[header.split :], header.k_before, header.removed)
    return Delta(added=new, removed=before.indices[places], digest=header.after)


def declared_added(data: Payload) -> int:
    """How many indices a header says are added, believed by nobody yet; 0 of what has no header."""
    return int(_HEADER.unpack_from(data)[6]) if len(data) >= _HEADER.size else 0


def _read_header(data: Payload) -> _Header:
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
    header = _Header(m, k, added, removed, split, *digests)
    if not (
        1 <= header.k <= header.m <= MAX_PARAMETERS
        and header.added <= header.k
        and header.removed <= header.k_before <= header.m
        and header.k_before >= 1
    ):
        raise InvalidSupport(
            f"bytes 8-39 declare M = {header.m}, K = {header.k}, {header.added} added and "
            f"{header.removed} removed indices: no support becomes another so"
        )
    return header


def _encode(indices: IndexArray, num_parameters: int) -> bytes:
    """A gap stream, which of no index has no byte."""
    return gaps.encode(indices, num_parameters).tobytes() if indices.size else b""


def _decode(
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
