"""The kernels compiled by numba: the same results as ``reference``, faster.

They hold no lock on the interpreter and start no threads of their own: callers run them side by
side. Each public function makes its arguments one fixed type (contiguous, read-only where only
read) and calls one compiled loop, so :func:`warm` can compile everything a process will ever need
before it serves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.fast import blinding as fast_blinding
from modelkin.core.kernels.fast import holdings as fast_holdings
from modelkin.core.kernels.fast import lines as fast_lines
from modelkin.core.kernels.fast import minhash as fast_minhash
from modelkin.core.kernels.fast import octaves as fast_octaves
from modelkin.core.kernels.fast import pairs as fast_pairs
from modelkin.core.kernels.fast import probes as fast_probes
from modelkin.core.kernels.fast import search as fast_search
from modelkin.core.kernels.fast import selection as fast_selection
from modelkin.core.kernels.fast import shards as fast_shards
from modelkin.core.kernels.fast.blinding import permute
from modelkin.core.kernels.fast.holdings import column_counts, set_bits, weighted_sums
from modelkin.core.kernels.fast.lines import (
    add_squares,
    keep_largest,
    keys_of_largest,
    line_keys,
    members_of_sets,
)
from modelkin.core.kernels.fast.minhash import hashes, minhash32, minhash64
from modelkin.core.kernels.fast.octaves import probe_octaves, shared_octaves
from modelkin.core.kernels.fast.pairs import keep_nearest, match_table
from modelkin.core.kernels.fast.probes import (
    least_hash_indices,
    least_preimages,
    probe_bitmap,
    probe_list,
)
from modelkin.core.kernels.fast.search import (
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
from modelkin.core.kernels.fast.selection import (
    emit,
    histogram,
    histogram_mass,
    histogram_within,
)
from modelkin.core.kernels.fast.shards import collect, deal, draw, take_one_in
from modelkin.core.kernels.loops import (
    NotKept,
    compile_loop,
    compiling_while,
    popcount,
    read_only,
)

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


def gap_encode(indices: Indices, low_bytes: int) -> Bytes:
    frozen = read_only(indices)
    stream = np.empty(int(_gap_size(frozen, low_bytes)), np.uint8)
    _gap_encode(frozen, low_bytes, stream)
    return stream


@compile_loop
def _gap_size(indices: Any, low_bytes: int) -> Any:
    shift = np.uint64(8 * low_bytes)
    escapes, begin = np.uint64(0), np.uint64(0)
    for index in indices:
        escapes += ((np.uint64(index) - begin) >> shift) // np.uint64(255)
        begin = np.uint64(index) + np.uint64(1)
    return escapes + np.uint64(indices.size * (1 + low_bytes))


@compile_loop
def _gap_encode(indices: Any, low_bytes: int, stream: Any) -> None:
    k, shift = indices.size, np.uint64(8 * low_bytes)
    at, begin, full = np.uint64(0), np.uint64(0), np.uint64(255)
    planes = stream.size - k * low_bytes
    for j in range(k):
        gap = np.uint64(indices[j]) - begin
        begin = np.uint64(indices[j]) + np.uint64(1)
        quotient = gap >> shift
        while quotient >= full:
            stream[at] = np.uint8(255)
            at += np.uint64(1)
            quotient -= full
        stream[at] = np.uint8(quotient)
        at += np.uint64(1)
        for plane in range(low_bytes):
            stream[planes + plane * k + j] = np.uint8(gap >> np.uint64(8 * plane))


def gap_decode(
    symbols: Bytes, planes: Bytes, low_bytes: int, num_parameters: int, indices: Indices
) -> int:
    if low_bytes == 0 and _gap_decode_dense(read_only(symbols), indices) <= num_parameters:
        return indices.size
    return int(
        _gap_decode(read_only(symbols), read_only(planes), low_bytes, num_parameters, indices)
    )


@compile_loop
def _gap_decode_dense(symbols: Any, indices: Any) -> Any:
    """Decode without branches and low bytes; returns one more than the last index, unwrapped."""
    stop, at, one = np.uint64(0), np.uint64(0), np.uint64(1)
    for symbol in symbols:
        ends = np.uint64(symbol != np.uint8(255))
        stop += np.uint64(symbol) + ends
        indices[at] = stop - one
        at += ends
    return stop


@compile_loop
def _gap_decode(
    symbols: Any, planes: Any, low_bytes: int, num_parameters: int, indices: Any
) -> Any:
    k, shift, limit = indices.size, np.uint64(8 * low_bytes), np.uint64(num_parameters)
    quotient, begin, j = np.uint64(0), np.uint64(0), 0
    for symbol in symbols:
        quotient += np.uint64(symbol)
        if symbol == np.uint8(255):
            continue
        gap = quotient << shift
        for plane in range(low_bytes):
            gap |= np.uint64(planes[plane * k + j]) << np.uint64(8 * plane)
        # Compared before it is added: nothing here can wrap.
        if quotient > (limit >> shift) or gap >= limit - begin:
            return j
        begin += gap
        indices[j] = begin
        begin += np.uint64(1)
        quotient = np.uint64(0)
        j += 1
    return j


def match_counts(
    rows: Bytes, query: Bytes, counts: npt.NDArray[np.int16] | None = None
) -> npt.NDArray[np.int16]:
    matches = np.empty(rows.shape[0], np.int16) if counts is None else counts
    _match_counts(read_only(rows), read_only(query), matches)
    return matches


@compile_loop
def _match_counts(rows: Any, query: Any, matches: Any) -> None:
    for row in range(rows.shape[0]):
        equal = np.int32(0)
        for j in range(query.size):
            equal = np.int32(equal + np.int32(rows[row, j] == query[j]))
        matches[row] = np.int16(equal)


def bitmap(indices: Indices, num_parameters: int) -> npt.NDArray[np.uint64]:
    words = np.zeros(-(-num_parameters // 64), np.uint64)
    _bitmap(read_only(indices), words)
    return words


@compile_loop
def _bitmap(indices: Any, words: Any) -> None:
    for index in indices:
        words[np.uint64(index) >> np.uint64(6)] |= np.uint64(1) << (
            np.uint64(index) & np.uint64(63)
        )


def and_count(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> int:
    return int(_and_count(read_only(a), read_only(b)))


@compile_loop
def _and_count(a: Any, b: Any) -> Any:
    shared = np.uint64(0)
    for i in range(a.size):
        shared += popcount(a[i] & b[i])
    return shared


def and_count_table(
    rows: npt.NDArray[np.uint64], columns: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    shared = np.zeros((rows.shape[0], columns.shape[0]), np.int64)
    _and_count_table(read_only(rows), read_only(columns), shared)
    return shared


@compile_loop
def _and_count_table(rows: Any, columns: Any, shared: Any) -> None:
    # Stretches of 2 KiB keep a tile of rows and one of columns in the nearest caches.
    for begin in range(0, rows.shape[1], 256):
        for i in range(rows.shape[0]):
            left = rows[i, begin : begin + 256]
            for j in range(columns.shape[0]):
                right = columns[j, begin : begin + 256]
                count = np.uint64(0)
                for word in range(left.size):
                    count += popcount(left[word] & right[word])
                shared[i, j] += np.int64(count)


def probe_count(words: npt.NDArray[np.uint64], indices: Indices) -> int:
    return int(_probe_count(read_only(words), read_only(indices)))


@compile_loop
def _probe_count(words: Any, indices: Any) -> Any:
    shared = np.uint64(0)
    for i in range(indices.size):
        index = np.uint64(indices[i])
        shared += (words[index >> np.uint64(6)] >> (index & np.uint64(63))) & np.uint64(1)
    return shared


def intersect_count(a: Indices, b: Indices) -> int:
    small, large = (a, b) if a.size <= b.size else (b, a)
    walk = _intersect_gallop if small.size * 32 < large.size else _intersect_merge
    return int(walk(read_only(small), read_only(large)))


@compile_loop
def _intersect_merge(a: Any, b: Any) -> Any:
    i, j, shared = np.uint64(0), np.uint64(0), np.uint64(0)
    while i < np.uint64(a.size) and j < np.uint64(b.size):
        x, y = a[i], b[j]
        shared += np.uint64(x == y)
        i += np.uint64(x <= y)
        j += np.uint64(y <= x)
    return shared


@compile_loop
def _intersect_gallop(small: Any, large: Any) -> Any:
    low, shared, size = 0, 0, large.size
    for index in small:
        step = 1
        while low + step < size and large[low + step] < index:
            step *= 2
        high = min(low + step, size - 1)
        low += step // 2
        while low < high:  # the first entry that is not below index
            middle = (low + high) // 2
            if large[middle] < index:
                low = middle + 1
            else:
                high = middle
        if low < size and large[low] == index:
            shared += 1
    return shared


def warm(may_compile: Callable[[], bool] = lambda: True) -> bool:
    """Load every loop for all its types from disk, or compile it.

    Args:
        may_compile: asked before each loop is compiled.

    Returns:
        Whether all are loaded; not where one was missing that could not be compiled.
    """
    try:
        with compiling_while(may_compile):
            _warm()
    except NotKept:
        return False
    return True


def _warm() -> None:
    octets, words = np.zeros(8, np.uint8), np.ones(1, np.uint64)
    small: list[Indices] = [np.zeros(1, np.uint32), np.zeros(1, np.uint64)]
    for indices in small:
        stream = gap_encode(indices, 0)
        gap_decode(stream, octets[:0], 0, 1, indices.copy())
        gap_decode(stream, octets[:0], 0, 0, indices.copy())
        bitmap(indices, 1)
        probe_count(words, indices)
        intersect_count(indices, indices)
        intersect_count(indices, np.zeros(64, indices.dtype))
    match_counts(octets.reshape(1, 8), octets)
    and_count(words, words)
    and_count_table(words.reshape(1, 1), words.reshape(1, 1))
    fast_blinding.warm()
    fast_holdings.warm()
    fast_lines.warm()
    fast_minhash.warm()
    fast_octaves.warm()
    fast_pairs.warm()
    fast_probes.warm()
    fast_search.warm()
    fast_shards.warm()
    fast_selection.warm()
