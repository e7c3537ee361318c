"""The native format of a support whose indices are never in memory together.

The header comes first and contains a digest of the rest, so the gap stream is spooled, a byte an
index, and compressed from there. Content and digest equal ``encode_support``'s; the zstd frame may
have other blocks. This module opens no file: the caller provides the spool.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs import gaps
from modelkin.core.codecs.frames import compressor
from modelkin.core.codecs.support import pack_header
from modelkin.core.indices import IndexArray
from modelkin.errors import InvalidSupport

__all__ = ["StreamedSupport", "stream_support"]

Bytes = npt.NDArray[np.uint8]

_PIECE_BYTES = 1 << 20


class StreamedSupport(NamedTuple):
    """An encoded payload: its digest, ``"sha256:..."``, and its bytes, piece by piece."""

    digest: str
    pieces: Iterator[bytes]


def stream_support(
    parts: Iterable[IndexArray], num_parameters: int, k: int, spool: BinaryIO
) -> StreamedSupport:
    """Encode a support in memory for one part, and for the low bytes of sparse supports.

    ``parts`` is consumed before this returns; the pieces are computed as they are read.

    Args:
        parts: the indices, ascending and distinct within and across parts, below M.
        num_parameters: M, 1 to 2^63 - 1.
        k: K, the sum of the parts' indices.
        spool: empty, readable, writable and seekable; it grows to the size of the gap stream, and
            is read with the pieces.

    Raises:
        InvalidSupport: the parts hold more or fewer than K indices.
    """
    state = hashlib.sha256(struct.pack("<QQ", num_parameters, k))
    size = 0
    for block in _blocks(parts, num_parameters, k):
        state.update(block.data)
        size += spool.write(block.data)
    digest = f"sha256:{state.hexdigest()}"
    return StreamedSupport(digest, _pieces(pack_header(num_parameters, k, digest), spool, size))


def _blocks(parts: Iterable[IndexArray], num_parameters: int, k: int) -> Iterator[Bytes]:
    """The gap stream: the symbols part by part, then the planes, which are under M / 256 bytes."""
    w = gaps.low_bytes(num_parameters, k)
    planes: list[list[Bytes]] = [[] for _ in range(w)]
    begin = seen = 0
    for indices in parts:
        if indices.size == 0:
            continue
        symbols, low = gaps.encode_part(indices, begin, w)
        for plane, stretch in zip(planes, low, strict=True):
            plane.append(stretch.copy())  # not a view that keeps the symbols alive
        begin, seen = int(indices[-1]) + 1, seen + indices.size
        yield symbols
    if seen != k:
        raise InvalidSupport(f"the parts hold {seen} indices, not the {k} announced")
    for plane in planes:
        yield from plane


def _pieces(header: bytes, spool: BinaryIO, size: int) -> Iterator[bytes]:
    crc = 0
    for piece in _frame(header, spool, size):
        crc = zlib.crc32(piece, crc)
        yield piece
    yield struct.pack("<I", crc)


def _frame(header: bytes, spool: BinaryIO, size: int) -> Iterator[bytes]:
    yield header
    frame = compressor().compressobj(size=size)  # declares the content size, as readers demand
    spool.seek(0)
    while block := spool.read(_PIECE_BYTES):
        yield frame.compress(block)
    yield frame.flush()
