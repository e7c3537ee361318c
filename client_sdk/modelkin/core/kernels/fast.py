"""The kernels compiled by numba: the same answers as ``reference``, sooner.

They hold no lock on the interpreter and start no threads of their own: callers run them side by
side. Each public function makes its arguments one fixed type (contiguous, read-only where only
read) and calls one compiled loop, so :func:`warm` can compile everything a process will ever need
before it serves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
F = TypeVar("F", bound=Callable[..., Any])
A = TypeVar("A", bound=npt.NDArray[Any])


def _compiled(function: F) -> F:
    """numba's loop of a function, kept on disk where any folder for it can be written."""
    compiler: Any = numba.njit
    try:
        loop: F = compiler(function, nogil=True, error_model="numpy", cache=True)
    except RuntimeError:  # no folder to keep it in
        loop = compiler(function, nogil=True, error_model="numpy")
    return loop


def _read(array: A) -> A:
    """The array as the one type that a loop is compiled for: contiguous, aligned, read-only."""
    plain: Any = np.require(array, requirements=["C", "A"])
    if plain.flags.writeable:
        plain = plain.view()
        plain.flags.writeable = False
    return plain  # type: ignore[no-any-return]


def _typed_popcount(context: Any, word: Any) -> Any:
    """The processor's own bit count of a uint64, which numba does not offer."""

    def emit_call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), emit_call


_popcount: Any = intrinsic(_typed_popcount)


def gap_encode(indices: Indices, low_bytes: int) -> Bytes:
    frozen = _read(indices)
    stream = np.empty(int(_gap_size(frozen, low_bytes)), np.uint8)
    _gap_encode(frozen, low_bytes, stream)
    return stream


@_compiled
def _gap_size(indices: Any, low_bytes: int) -> Any:
    shift = np.uint64(8 * low_bytes)
    escapes, begin = np.uint64(0), np.uint64(0)
    for index in indices:
        escapes += ((np.uint64(index) - begin) >> shift) // np.uint64(255)
        begin = np.uint64(index) + np.uint64(1)
    return escapes + np.uint64(indices.size * (1 + low_bytes))


@_compiled
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
    if low_bytes == 0 and _gap_decode_dense(_read(symbols), indices) <= num_parameters:
        return indices.size
    return int(_gap_decode(_read(symbols), _read(planes), low_bytes, num_parameters, indices))


@_compiled
def _gap_decode_dense(symbols: Any, indices: Any) -> Any:
    """Without a branch and without low bytes; answers one more than the last index, unwrapped."""
    stop, at, one = np.uint64(0), np.uint64(0), np.uint64(1)
    for symbol in symbols:
        ends = np.uint64(symbol != np.uint8(255))
        stop += np.uint64(symbol) + ends
        indices[at] = stop - one
        at += ends
    return stop


@_compiled
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


def histogram(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    counts = np.zeros(65536, np.int64)
    _histogram(_read(bits), counts)
    return counts


@_compiled
def _histogram(bits: Any, counts: Any) -> None:
    table, shift, one = np.zeros(65536, np.uint32), np.uint32(16), np.uint32(1)
    for begin in range(0, bits.size, 1 << 31):
        stretch = bits[begin : begin + (1 << 31)]
        for i in range(stretch.size):
            table[stretch[i] >> shift] += one
        for upper in range(65536):
            counts[upper] += np.int64(table[upper])
            table[upper] = 0


def histogram_mass(
    bits: npt.NDArray[np.uint32],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    counts, low = np.zeros(65536, np.int64), np.zeros(65536, np.int64)
    _histogram_mass(_read(bits), counts, low)
    return counts, low


@_compiled
def _histogram_mass(bits: Any, counts: Any, low: Any) -> None:
    # One cell holds the count from bit 40 up and the sum of lower halves below it: one load and one store an
    # element. It is emptied every 2^23 elements, before either field can overflow.
    table, shift, half = np.zeros(65536, np.uint64), np.uint32(16), np.uint32(0xFFFF)
    one, field = np.uint64(1 << 40), np.uint64((1 << 40) - 1)
    for begin in range(0, bits.size, 1 << 23):
        stretch = bits[begin : begin + (1 << 23)]
        for i in range(stretch.size):
            table[stretch[i] >> shift] += one + np.uint64(stretch[i] & half)
        for upper in range(65536):
            counts[upper] += np.int64(table[upper] >> np.uint64(40))
            low[upper] += np.int64(table[upper] & field)
            table[upper] = 0


def histogram_within(bits: npt.NDArray[np.uint32], upper: int) -> npt.NDArray[np.int64]:
    counts = np.zeros(65536, np.int64)
    _histogram_within(_read(bits), np.uint32(upper), counts)
    return counts


@_compiled
def _histogram_within(bits: Any, upper: Any, counts: Any) -> None:
    shift, half = np.uint32(16), np.uint32(0xFFFF)
    for begin in range(0, bits.size, 128):
        stretch = bits[begin : begin + 128]
        inside = np.uint32(0)
        for i in range(stretch.size):  # vectorised, and most stretches hold nothing of the bin
            inside = np.uint32(inside | np.uint32((stretch[i] >> shift) == upper))
        if inside:
            for i in range(stretch.size):
                if (stretch[i] >> shift) == upper:
                    counts[stretch[i] & half] += 1


def emit(bits: npt.NDArray[np.uint32], threshold: int, ties: int, k: int) -> Indices:
    # One more than k: without a branch every index is written, then the cursor moves or does not.
    indices: Indices = (
        np.empty(k + 1, np.uint32) if bits.size <= 2**32 else np.empty(k + 1, np.uint64)
    )
    signed = _read(bits.view(np.int32))
    last = bits.size if ties >= bits.size else int(_behind_ties(signed, threshold, ties))
    done = _emit(signed, threshold, 0, last, indices, 0)
    _emit(signed, threshold + 1, last, bits.size, indices, done)
    return indices[:k]


@_compiled
def _behind_ties(signed: Any, threshold: Any, ties: Any) -> Any:
    """The position behind the last tie that is taken; 0 where none is."""
    threshold = np.int32(threshold)
    if ties == 0:
        return 0
    for begin in range(0, signed.size, 4096):
        stretch = signed[begin : begin + 4096]
        equal: Any = np.int32(0)
        for i in range(stretch.size):
            equal = np.int32(equal + np.int32(stretch[i] == threshold))
        if equal < ties:
            ties -= equal
            continue
        for i in range(stretch.size):
            ties -= np.int64(stretch[i] == threshold)
            if ties == 0:
                return begin + i + 1
    return signed.size


@_compiled
def _emit(signed: Any, least: Any, begin: int, end: int, indices: Any, done: int) -> Any:
    at, i, least = np.uint64(done), np.uint64(begin), np.int32(least)
    while i < np.uint64(end):
        indices[at] = i
        at += np.uint64(signed[i] >= least)
        i += np.uint64(1)
    return np.int64(at)


def minhash32(
    indices: npt.NDArray[np.uint32], a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint32]:
    least = np.full(a.size, 2**32 - 1, np.uint32)
    _minhash32(_read(indices), _read(a), _read(b), least)
    return least


@_compiled
def _minhash32(indices: Any, a: Any, b: Any, least: Any) -> None:
    # Every step is cast back: numba makes uint64 of uint32 * uint32, which is neither 2^32 arithmetic nor fast.
    mixed = np.empty(2048, np.uint32)
    for begin in range(0, indices.size, 2048):
        size = min(2048, indices.size - begin)
        for i in range(size):
            x = np.uint32(indices[begin + i])
            x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B))
            x = np.uint32(np.uint32(x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35))
            mixed[i] = np.uint32(x ^ (x >> np.uint32(16)))
        for j in range(a.size):
            factor, offset, smallest = a[j], b[j], least[j]
            for i in range(size):
                value = np.uint32(np.uint32(factor * mixed[i]) + offset)
                smallest = value if value < smallest else smallest
            least[j] = smallest


def minhash64(
    indices: Indices, a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    least = np.full(a.size, 2**64 - 1, np.uint64)
    _minhash64(_read(indices), _read(a), _read(b), least)
    return least


@_compiled
def _minhash64(indices: Any, a: Any, b: Any, least: Any) -> None:
    mixed = np.empty(1024, np.uint64)
    for begin in range(0, indices.size, 1024):
        size = min(1024, indices.size - begin)
        for i in range(size):
            x = np.uint64(indices[begin + i])
            x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
            x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
            mixed[i] = x ^ (x >> np.uint64(33))
        for j in range(a.size):
            factor, offset, smallest = a[j], b[j], least[j]
            for i in range(size):
                value = factor * mixed[i] + offset
                smallest = value if value < smallest else smallest
            least[j] = smallest


def match_counts(rows: Bytes, query: Bytes) -> npt.NDArray[np.int32]:
    matches = np.empty(rows.shape[0], np.int32)
    _match_counts(_read(rows), _read(query), matches)
    return matches


@_compiled
def _match_counts(rows: Any, query: Any, matches: Any) -> None:
    for row in range(rows.shape[0]):
        equal = np.int32(0)
        for j in range(query.size):
            equal = np.int32(equal + np.int32(rows[row, j] == query[j]))
        matches[row] = equal


def bitmap(indices: Indices, num_parameters: int) -> npt.NDArray[np.uint64]:
    words = np.zeros(-(-num_parameters // 64), np.uint64)
    _bitmap(_read(indices), words)
    return words


@_compiled
def _bitmap(indices: Any, words: Any) -> None:
    for index in indices:
        words[np.uint64(index) >> np.uint64(6)] |= np.uint64(1) << (
            np.uint64(index) & np.uint64(63)
        )


def and_count(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> int:
    return int(_and_count(_read(a), _read(b)))


@_compiled
def _and_count(a: Any, b: Any) -> Any:
    shared = np.uint64(0)
    for i in range(a.size):
        shared += _popcount(a[i] & b[i])
    return shared


def and_count_table(
    rows: npt.NDArray[np.uint64], columns: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    shared = np.zeros((rows.shape[0], columns.shape[0]), np.int64)
    _and_count_table(_read(rows), _read(columns), shared)
    return shared


@_compiled
def _and_count_table(rows: Any, columns: Any, shared: Any) -> None:
    # Stretches of 2 KiB keep a block of rows and one of columns in the first- and second-level cache.
    for begin in range(0, rows.shape[1], 256):
        for i in range(rows.shape[0]):
            left = rows[i, begin : begin + 256]
            for j in range(columns.shape[0]):
                right = columns[j, begin : begin + 256]
                count = np.uint64(0)
                for word in range(left.size):
                    count += _popcount(left[word] & right[word])
                shared[i, j] += np.int64(count)


def probe_count(words: npt.NDArray[np.uint64], indices: Indices) -> int:
    return int(_probe_count(_read(words), _read(indices)))


@_compiled
def _probe_count(words: Any, indices: Any) -> Any:
    shared = np.uint64(0)
    for i in range(indices.size):
        index = np.uint64(indices[i])
        shared += (words[index >> np.uint64(6)] >> (index & np.uint64(63))) & np.uint64(1)
    return shared


def intersect_count(a: Indices, b: Indices) -> int:
    small, large = (a, b) if a.size <= b.size else (b, a)
    walk = _intersect_gallop if small.size * 32 < large.size else _intersect_merge
    return int(walk(_read(small), _read(large)))


@_compiled
def _intersect_merge(a: Any, b: Any) -> Any:
    i, j, shared = np.uint64(0), np.uint64(0), np.uint64(0)
    while i < np.uint64(a.size) and j < np.uint64(b.size):
        x, y = a[i], b[j]
        shared += np.uint64(x == y)
        i += np.uint64(x <= y)
        j += np.uint64(y <= x)
    return shared


@_compiled
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


def warm() -> None:
    """Compiles, or loads from disk, every loop for every type it will meet; takes seconds the first time ever."""
    octets, words = np.zeros(8, np.uint8), np.ones(1, np.uint64)
    small: list[Indices] = [np.zeros(1, np.uint32), np.zeros(1, np.uint64)]
    for indices in small:
        stream = gap_encode(indices, 0)
        gap_decode(stream, octets[:0], 0, 1, indices.copy())
        gap_decode(stream, octets[:0], 0, 0, indices.copy())
        minhash64(indices, words, words)
        bitmap(indices, 1)
        probe_count(words, indices)
        intersect_count(indices, indices)
        intersect_count(indices, np.zeros(64, indices.dtype))
    bits = np.ones(1, np.uint32)
    histogram(bits)
    histogram_mass(bits)
    histogram_within(bits, 0)
    emit(bits, 1, 1, 1)
    emit(bits, 1, 0, 1)
    _emit(_read(bits.view(np.int32)), 1, 0, 1, np.empty(2, np.uint64), 0)
    minhash32(bits, bits, bits)
    match_counts(octets.reshape(1, 8), octets)
    and_count(words, words)
    and_count_table(words.reshape(1, 1), words.reshape(1, 1))
