"""The gap stream: the one canonical byte string of a support, under its digest and its wire format.

For ascending indices ``i_0 < i_1 < ...`` the gaps are ``g_0 = i_0`` and ``g_j = i_j - i_(j-1) -
1``. A gap loses its ``w`` low bytes to planes of their own (none above a density of 1/256); the
rest ``q`` is a *symbol*: as many bytes 255 as ``q // 255`` says, then one byte ``q % 255``. All
symbols come first, then the ``w`` planes of K bytes each, least significant plane first. Every
support has exactly one stream and no stream has two readings.

This module neither compresses nor touches a header: ``frames`` and the formats do.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from modelkin.core.gaps import NO_GAPS, Gaps
from modelkin.core.indices import IndexArray, index_dtype
from modelkin.core.kernels.choice import kernels
from modelkin.core.octaves import Octaves
from modelkin.errors import InvalidSupport

__all__ = [
    "decode",
    "digest",
    "digest_of_parts",
    "encode",
    "encode_part",
    "low_bytes",
    "max_stream_size",
]

ESCAPE = 255
"""A symbol byte that means "add 255, and read on"."""


def low_bytes(num_parameters: int, k: int) -> int:
    """``w``: how many low bytes of every gap are stored separately, uncoded.

    The smallest ``w >= 0`` with ``M < 256 * K * 256**w``, in exact integers, so that the mean
    symbol is below 256.

    Args:
        num_parameters: M, at least 1.
        k: K, at least 1.
    """
    w = 0
    while num_parameters >= (k << 8) << (8 * w):
        w += 1
    return w


def max_stream_size(num_parameters: int, k: int) -> int:
    """The most bytes of a stream of ``k`` indices; the least is ``k * (1 + w)``.

    The symbols of all gaps sum to at most ``M >> 8w``, and each 255 of them costs one byte.
    """
    w = low_bytes(num_parameters, k)
    return k * (1 + w) + (num_parameters >> (8 * w)) // ESCAPE


def encode(indices: IndexArray, num_parameters: int) -> npt.NDArray[np.uint8]:
    """The gap stream of a support.

    Args:
        indices: K valid indices, ascending and distinct, uint32 or uint64, K at least 1.
        num_parameters: M.

    Returns:
        uint8, shape ``(n,)`` with ``K * (1 + w) <= n <= max_stream_size(M, K)``.
    """
    stream: npt.NDArray[np.uint8] = kernels().gap_encode(
        indices, low_bytes(num_parameters, indices.size)
    )
    return stream


def encode_part(
    indices: IndexArray, begin: int, low_bytes: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Encode a stretch of a support: its symbols, and its bytes of each plane.

    The symbols of all stretches, then the first plane of all stretches, and so on, are the stream.

    Args:
        indices: the next indices, ascending and distinct, at least ``begin``.
        begin: one more than the last index before them, 0 for the first.
        low_bytes: :func:`low_bytes` of M and of the K of the whole support.

    Returns:
        uint8 of shape ``(n,)``, and uint8 of shape ``(low_bytes, len(indices))``.
    """
    if indices.size == 0:
        return np.empty(0, np.uint8), np.empty((low_bytes, 0), np.uint8)
    stream = kernels().gap_encode(indices - indices.dtype.type(begin), low_bytes)
    symbols = stream.size - low_bytes * indices.size
    return stream[:symbols], stream[symbols:].reshape(low_bytes, indices.size)


def decode(stream: npt.NDArray[np.uint8], num_parameters: int, k: int) -> IndexArray:
    """The indices of an untrusted gap stream.

    Allocates ``k`` indices, and only once the stream is seen to hold ``k`` symbols.

    Args:
        stream: uint8, contiguous, shape ``(n,)``.
        num_parameters: M, 1 to 2^63 - 1.
        k: K, 1 to M.

    Raises:
        InvalidSupport: the stream is too short or too long for M and K, ends within an escape,
            holds more or fewer than K indices, or an index of it is M or beyond.
    """
    if not 1 <= k <= num_parameters:
        raise InvalidSupport(f"a support of {num_parameters} parameters cannot have {k} indices")
    w = low_bytes(num_parameters, k)
    least, most = k * (1 + w), max_stream_size(num_parameters, k)
    if not least <= stream.size <= most:
        raise InvalidSupport(
            f"the gap stream has {stream.size} bytes, {k} indices of {num_parameters} "
            f"parameters take {least} to {most}"
        )
    symbols, planes = stream[: stream.size - w * k], stream[stream.size - w * k :]
    if symbols[-1] == ESCAPE:
        raise InvalidSupport(f"the gap stream ends within an escape, at byte {symbols.size - 1}")
    held = int(np.count_nonzero(symbols != ESCAPE))
    if held != k:
        raise InvalidSupport(f"the gap stream holds {held} indices, not the {k} it should")
    indices: IndexArray = np.empty(k, dtype=index_dtype(num_parameters))
    valid = int(kernels().gap_decode(symbols, planes, w, num_parameters, indices))
    if valid != k:
        raise InvalidSupport(
            f"the gap stream leads out of range: indices[{valid}] is not below {num_parameters}"
        )
    return indices


def digest(
    stream: npt.NDArray[np.uint8],
    num_parameters: int,
    k: int,
    octaves: Octaves | None = None,
    gaps: Gaps = NO_GAPS,
) -> str:
    """``"sha256:"`` and the hexadecimal SHA-256 (FIPS 180-4) of M, K and the gap stream.

    M and K go in as u64, little-endian. The octaves of an ordered support follow the stream. A gap
    stream with them behind it is never a gap stream, so no plain support has that digest. Where the
    support does not cover all parameters, all this follows a zero, how many ranges it leaves out,
    and these: no M is zero, so no support without gaps has that digest.
    """
    return digest_of_parts([stream], num_parameters, k, octaves, gaps)


def digest_of_parts(
    parts: Iterable[npt.NDArray[np.uint8]],
    num_parameters: int,
    k: int,
    octaves: Octaves | None = None,
    gaps: Gaps = NO_GAPS,
) -> str:
    """The :func:`digest` of a gap stream that is made a part at a time."""
    state = hashlib.sha256()
    if gaps:
        state.update(struct.pack("<QQ", 0, len(gaps.ranges)) + gaps.to_bytes())
    state.update(struct.pack("<QQ", num_parameters, k))
    for part in parts:
        state.update(np.ascontiguousarray(part).data)
    if octaves is not None:
        state.update(np.ascontiguousarray(octaves).data)
    return f"sha256:{state.hexdigest()}"
