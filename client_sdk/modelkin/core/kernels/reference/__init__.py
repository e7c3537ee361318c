"""The kernels in numpy: short, obviously correct, and the standard for the fast ones, bit for bit.

They also run where numba is not installed, so they work in blocks: no temporary grows with the
input.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.reference.blinding import permute
from modelkin.core.kernels.reference.holdings import column_counts, set_bits, weighted_sums
from modelkin.core.kernels.reference.lines import (
    add_squares,
    keep_largest,
    keys_of_largest,
    line_keys,
    members_of_sets,
)
from modelkin.core.kernels.reference.minhash import hashes, minhash32, minhash64
from modelkin.core.kernels.reference.octaves import probe_octaves, shared_octaves
from modelkin.core.kernels.reference.pairs import keep_nearest, match_table
from modelkin.core.kernels.reference.probes import (
    least_hash_indices,
    least_preimages,
    probe_bitmap,
    probe_list,
)
from modelkin.core.kernels.reference.search import (
    and_count_rows,
    band_keys,
    best,
    bits_at,
    difference,
    match_counts_at,
    members,
    seal,
    sealed_counts,
)
from modelkin.core.kernels.reference.shards import collect, deal, draw, take_one_in

__all__ = [
    "add_squares",
    "and_count",
    "and_count_rows",
    "and_count_table",
    "band_keys",
    "best",
    "bitmap",
    "bits_at",
    "collect",
    "column_counts",
    "deal",
    "difference",
    "draw",
    "emit",
    "gap_decode",
    "gap_encode",
    "hashes",
    "histogram",
    "histogram_mass",
    "histogram_within",
    "intersect_count",
    "keep_largest",
    "keep_nearest",
    "keys_of_largest",
    "least_hash_indices",
    "least_preimages",
    "line_keys",
    "match_counts",
    "match_counts_at",
    "match_table",
    "members",
    "members_of_sets",
    "minhash32",
    "minhash64",
    "permute",
    "probe_bitmap",
    "probe_count",
    "probe_list",
    "probe_octaves",
    "seal",
    "sealed_counts",
    "set_bits",
    "shared_octaves",
    "take_one_in",
    "warm",
    "weighted_sums",
]

Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]

BLOCK = 1 << 16
"""Elements a step: numpy's temporaries stay in the second-level cache."""


def warm(may_compile: Callable[[], bool] = lambda: True) -> bool:  # noqa: ARG001 (as fast's)
    """Do nothing: there is nothing to compile."""
    return True


def gap_encode(indices: Indices, low_bytes: int) -> Bytes:
    """The gap stream, see ``modelkin.core.codecs.gaps``.

    Args:
        indices: ascending, distinct, shape ``(k,)``.
        low_bytes: w, 0 to 7.
    """
    pieces, planes, begin = [], np.empty((low_bytes, indices.size), np.uint8), np.uint64(0)
    shift = np.uint64(8 * low_bytes)
    for at in range(0, indices.size, BLOCK):
        block = indices[at : at + BLOCK].astype(np.uint64)
        gaps = block.copy()
        gaps[1:] -= block[:-1] + np.uint64(1)
        gaps[0] -= begin
        begin = block[-1] + np.uint64(1)
        for plane in range(low_bytes):
            planes[plane, at : at + BLOCK] = (gaps >> np.uint64(8 * plane)) & np.uint64(255)
        pieces.append(_symbols(gaps >> shift))
    return np.concatenate([*pieces, planes.ravel()])


def _symbols(quotients: npt.NDArray[np.uint64]) -> Bytes:
    escapes, last = np.divmod(quotients, np.uint64(255))
    if not escapes.any():
        return last.astype(np.uint8)
    ends = np.cumsum(escapes.astype(np.int64) + 1)
    symbols = np.full(ends[-1], 255, np.uint8)
    symbols[ends - 1] = last
    return symbols


def gap_decode(
    symbols: Bytes, planes: Bytes, low_bytes: int, num_parameters: int, indices: Indices
) -> int:
    """Fill ``indices`` from a stream that has exactly as many symbols.

    Args:
        symbols: ends with a byte below 255, holds k such bytes.
        planes: shape ``(low_bytes * k,)``.
        low_bytes: w, 0 to 7.
        num_parameters: M, below 2^63; ``symbols`` holds at most ``(M >> 8w) // 255`` bytes of 255.
        indices: k indices to be written.

    Returns:
        How many indices, from the first, are below M.
    """
    k, limit, shift = indices.size, np.uint64(num_parameters), np.uint64(8 * low_bytes)
    done, carried, begin = 0, np.uint64(0), np.uint64(0)
    for at in range(0, symbols.size, BLOCK):
        block = symbols[at : at + BLOCK]
        ends = np.flatnonzero(block != 255)
        sums = np.cumsum(block, dtype=np.uint64) + carried
        if ends.size == 0:
            carried = sums[-1]
            continue
        quotients = sums[ends]
        carried = sums[-1] - quotients[-1]
        quotients[1:] -= quotients[:-1].copy()
        valid = quotients <= (limit >> shift)
        gaps = quotients << shift
        for plane in range(low_bytes):
            low = planes[plane * k + done : plane * k + done + ends.size]
            gaps |= low.astype(np.uint64) << np.uint64(8 * plane)
        valid &= gaps < limit
        # The first sum beyond M cannot have wrapped: both of its terms are below 2^63.
        stops = np.cumsum(gaps + np.uint64(1)) + begin
        valid &= stops <= limit
        if not valid.all():
            return done + int(np.argmin(valid))
        indices[done : done + ends.size] = stops - np.uint64(1)
        done, begin = done + ends.size, stops[-1]
    return done


def histogram(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """How many floats share each upper half; float bits order like the floats themselves.

    Args:
        bits: float32 seen as uint32, shape ``(n,)``.

    Returns:
        Shape ``(65536,)``, indexed by ``bits >> 16``.
    """
    counts = np.zeros(65536, np.int64)
    for at in range(0, bits.size, BLOCK):
        counts += np.bincount(bits[at : at + BLOCK] >> np.uint32(16), minlength=65536)
    return counts


def histogram_mass(
    bits: npt.NDArray[np.uint32],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """:func:`histogram`, and for each upper half the sum of the lower halves, both exact.

    Together they are the exact mass of a bin, since within one bin only the lower half of the
    mantissa varies.
    """
    counts, low = np.zeros(65536, np.int64), np.zeros(65536, np.int64)
    for at in range(0, bits.size, BLOCK):
        block = bits[at : at + BLOCK]
        upper = block >> np.uint32(16)
        counts += np.bincount(upper, minlength=65536)
        # float64 weights, yet exact: a block's sum stays below 2^32.
        sums = np.bincount(upper, weights=block & np.uint32(0xFFFF), minlength=65536)
        low += sums.astype(np.int64)
    return counts, low


def histogram_within(bits: npt.NDArray[np.uint32], upper: int) -> npt.NDArray[np.int64]:
    """How many floats of one upper half have each lower half; shape ``(65536,)``."""
    counts = np.zeros(65536, np.int64)
    for at in range(0, bits.size, BLOCK):
        block = bits[at : at + BLOCK]
        inside = block[block >> np.uint32(16) == upper]
        counts += np.bincount(inside & np.uint32(0xFFFF), minlength=65536)
    return counts


def emit(bits: npt.NDArray[np.uint32], threshold: int, ties: int, k: int) -> Indices:
    """The ascending indices of all above ``threshold`` and of the first ``ties`` that equal it.

    Args:
        bits: float32 seen as uint32, shape ``(n,)``; no NaN, nothing negative but -0.0, which is
            below everything.
        threshold: bits of a positive float.
        ties: how many that equal the threshold are taken, lowest index first.
        k: how many indices that makes in all.

    Returns:
        Shape ``(k,)``, uint32 where n <= 2^32, else uint64.
    """
    indices = _indices(k, bits.size)
    signed, done = bits.view(np.int32), 0
    for at in range(0, bits.size, BLOCK):
        block = signed[at : at + BLOCK]
        taken = block > threshold
        equal = np.flatnonzero(block == threshold)[:ties]
        taken[equal] = True
        ties -= equal.size
        found = np.flatnonzero(taken)
        indices[done : done + found.size] = found + at
        done += found.size
    return indices


def _indices(size: int, num_parameters: int) -> Indices:
    return np.empty(size, np.uint32) if num_parameters <= 2**32 else np.empty(size, np.uint64)


def match_counts(
    rows: Bytes, query: Bytes, counts: npt.NDArray[np.int16] | None = None
) -> npt.NDArray[np.int16]:
    """How many bytes of each row equal the query's.

    Args:
        rows: shape ``(n, h)``, h at most 32,767.
        query: shape ``(h,)``.
        counts: the array to write into, shape ``(n,)``; a new array by default.

    Returns:
        Shape ``(n,)``.
    """
    matches = np.empty(rows.shape[0], np.int16) if counts is None else counts
    step = max(1, BLOCK * 16 // max(1, query.size))
    for at in range(0, rows.shape[0], step):
        np.sum(rows[at : at + step] == query, axis=1, dtype=np.int16, out=matches[at : at + step])
    return matches


def bitmap(indices: Indices, num_parameters: int) -> npt.NDArray[np.uint64]:
    """Set bit ``i % 64`` of word ``i // 64`` for every index i; shape ``(ceil(M / 64),)``."""
    octets = np.zeros(-(-num_parameters // 64) * 8, np.uint8)
    for at in range(0, octets.size, BLOCK):
        ends = np.searchsorted(indices, np.array([at * 8, (at + BLOCK) * 8], indices.dtype))
        flags = np.zeros(min(BLOCK, octets.size - at) * 8, np.bool_)
        flags[indices[ends[0] : ends[1]].astype(np.int64) - at * 8] = True
        octets[at : at + BLOCK] = np.packbits(flags, bitorder="little")
    return octets.view(np.uint64)


def and_count(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> int:
    """How many bits two bitmaps of equal length share."""
    shared = 0
    for at in range(0, a.size, BLOCK):
        shared += int(np.bitwise_count(a[at : at + BLOCK] & b[at : at + BLOCK]).sum())
    return shared


def and_count_table(
    rows: npt.NDArray[np.uint64], columns: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """:func:`and_count` of every row ``(n, w)`` with every column ``(m, w)``; shape ``(n, m)``."""
    return np.array([[and_count(a, b) for b in columns] for a in rows], np.int64)


def probe_count(words: npt.NDArray[np.uint64], indices: Indices) -> int:
    """How many of the indices are set in a bitmap that is longer than the largest of them."""
    shared = 0
    for at in range(0, indices.size, BLOCK):
        block = indices[at : at + BLOCK].astype(np.uint64)
        hits = words[block >> np.uint64(6)] >> (block & np.uint64(63))
        shared += int((hits & np.uint64(1)).sum())
    return shared


def intersect_count(a: Indices, b: Indices) -> int:
    """How many indices two ascending lists of one dtype share."""
    small, large = (a, b) if a.size <= b.size else (b, a)
    shared = 0
    for at in range(0, small.size, BLOCK):
        block = small[at : at + BLOCK]
        found = np.minimum(np.searchsorted(large, block), large.size - 1)
        shared += int(np.count_nonzero(large[found] == block))
    return shared
