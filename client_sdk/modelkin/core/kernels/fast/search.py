"""The loops of ``reference_search``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.loops import compile_loop, popcount, prefetch, read_only

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int16]
Rows = npt.NDArray[np.int64]


def band_keys(values: npt.NDArray[Any], bands: int, rows: int) -> Words:
    keys = np.empty((values.shape[0], bands), np.uint64)
    _band_keys(read_only(values), rows, keys)
    return keys


@compile_loop
def _mix64(x: Any) -> Any:
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compile_loop
def _band_keys(values: Any, rows: int, keys: Any) -> None:
    for i in range(keys.shape[0]):
        for band in range(keys.shape[1]):
            key = _mix64(np.uint64(band))
            for row in range(rows):
                key = _mix64(key ^ np.uint64(values[i, band * rows + row]))
            keys[i, band] = key


def difference(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    kept = np.empty(a.size + 1, a.dtype)
    return kept[: int(_difference(read_only(a), read_only(b), kept))].copy()


@compile_loop
def _difference(a: Any, b: Any, kept: Any) -> Any:
    i, j, at, one = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(1)
    while i < np.uint64(a.size) and j < np.uint64(b.size):
        x, y = a[i], b[j]
        kept[at] = x  # overwritten by the next one unless x is smaller, which b then cannot have
        at += np.uint64(x < y)
        i += np.uint64(x <= y)
        j += np.uint64(y <= x)
    while i < np.uint64(a.size):
        kept[at] = a[i]
        at += one
        i += one
    return at


def best(counts: Counts, most: int, count: int) -> Rows:
    if count <= 0:
        return np.empty(0, np.int64)
    counted = read_only(counts)
    found = np.empty(1, np.int64)
    last = _least_selected(counted, np.zeros((4, most + 2), np.int64), count, found)
    rows = np.empty(int(found[0]) + 1, np.int64)  # the cursor may rest behind the last
    _best(counted, int(last), rows)
    return rows[:-1]


@compile_loop
def _best(counts: Any, last: Any, rows: Any) -> None:
    at, least = np.uint64(0), np.int16(last)
    for begin in range(0, counts.size, 64):
        some = counts[begin : begin + 64]
        largest = np.int16(-1)
        for j in range(some.size):
            largest = max(largest, some[j])
        if largest < least:  # most stretches of many rows
            continue
        for j in range(some.size):
            rows[at] = begin + j
            at += np.uint64(some[j] >= least)


@compile_loop
def _least_selected(counts: Any, tallies: Any, count: int, found: Any) -> Any:
    """The least selected count; ``found`` gets how many rows have it or more."""
    # Four tallies in turn, so that equal counts in a row do not wait for each other's addition.
    for begin in range(0, counts.size, 4):
        some = counts[begin : begin + 4]
        for j in range(some.size):
            tallies[j, max(np.int64(some[j]), np.int64(-1)) + 1] += 1
    last, taken = tallies.shape[1] - 2, np.int64(0)
    while True:
        taken += tallies[0, last + 1] + tallies[1, last + 1] + tallies[2, last + 1]
        taken += tallies[3, last + 1]
        if taken >= count or last == 0:
            found[0] = taken
            return last
        last -= 1


def and_count_rows(rows: Words, query: Words, at: Rows) -> npt.NDArray[np.int64]:
    shared = np.empty(at.size, np.int64)
    _and_count_rows(read_only(rows), read_only(query), read_only(at), shared)
    return shared


@compile_loop
def _and_count_rows(rows: Any, query: Any, at: Any, shared: Any) -> None:
    for i in range(at.size):
        row, count = rows[at[i]], np.uint64(0)
        for word in range(query.size):
            count += popcount(row[word] & query[word])
        shared[i] = np.int64(count)


def match_counts_at(rows: npt.NDArray[np.uint8], query: npt.NDArray[np.uint8], at: Rows) -> Counts:
    matches = np.empty(at.size, np.int16)
    _match_counts_at(read_only(rows), read_only(query), read_only(at), matches)
    return matches


@compile_loop
def _match_counts_at(rows: Any, query: Any, at: Any, matches: Any) -> None:
    for i in range(at.size):
        # Rows lie far apart: one that comes later is on its way while this one is compared.
        ahead = np.uint64(at[min(i + 16, at.size - 1)]) * np.uint64(query.size)
        for line in range(0, query.size, 64):
            prefetch(np.uint64(rows.ctypes.data) + ahead + np.uint64(line))
        row, equal = rows[at[i]], np.int32(0)
        for j in range(query.size):
            equal = np.int32(equal + np.int32(row[j] == query[j]))
        matches[i] = np.int16(equal)


def sealed_counts(
    slots: Words, query: Words, at: Rows, tags: Words, part: int
) -> npt.NDArray[np.int64]:
    counts = np.empty((at.size, 2), np.int64)
    arrays = read_only(slots), read_only(query), read_only(at), read_only(tags)
    _sealed_counts(*arrays, part, counts)
    return counts


@compile_loop
def _sealed_counts(slots: Any, query: Any, at: Any, tags: Any, part: int, counts: Any) -> None:
    w, size = query.size, np.uint64(8 * slots.shape[1])
    for i in range(at.size):
        # Slots lie far apart: the one after next is on its way while this one is counted.
        ahead = np.uint64(slots.ctypes.data) + np.uint64(at[min(i + 2, at.size - 1)]) * size
        for line in range(0, 8 * w + 64, 64):
            prefetch(ahead + np.uint64(line))
        slot, shared = slots[at[i]], np.uint64(0)
        counts[i, 0], counts[i, 1] = -1, -1
        if slot[0] != tags[i]:
            continue
        whole, first, sealed = slot[1], slot[2], slot[3 + part]
        key = _mix64(_mix64(_mix64(tags[i]) ^ whole) ^ first)
        for begin in range(0, w, 64):  # the sum of a block and its bits, in one pass of vector code
            other = query[begin : min(begin + 64, w)]
            some, total = slot[8 + begin : 8 + begin + other.size], np.uint64(0)
            for j in range(other.size):
                shared += popcount(some[j] & other[j])
                total += some[j]
            key = _mix64(key ^ total)
        if key == sealed:
            counts[i, 0], counts[i, 1] = np.int64(shared), np.int64(whole if part else first)


def seal(words: Words, tag: int, members: int, first: int) -> int:
    return int(_seal(read_only(words), np.uint64(tag), np.uint64(members), np.uint64(first)))


@compile_loop
def _seal(words: Any, tag: Any, members: Any, first: Any) -> Any:
    key = _mix64(_mix64(_mix64(tag) ^ members) ^ first)
    for begin in range(0, words.size, 64):
        some, total = words[begin : begin + 64], np.uint64(0)
        for j in range(some.size):
            total += some[j]
        key = _mix64(key ^ total)
    return key


def bits_at(words: Words, coordinates: npt.NDArray[Any]) -> Words:
    bits = np.zeros(coordinates.size // 64, np.uint64)
    _bits_at(read_only(words), read_only(coordinates), bits)
    return bits


@compile_loop
def _bits_at(words: Any, coordinates: Any, bits: Any) -> None:
    for j in range(coordinates.size):
        at = np.uint64(coordinates[j])
        bit = (words[at >> np.uint64(6)] >> (at & np.uint64(63))) & np.uint64(1)
        bits[j >> 6] |= bit << np.uint64(j & 63)


def members(indices: npt.NDArray[Any], coordinates: npt.NDArray[Any]) -> Words:
    words = np.zeros(coordinates.size // 64, np.uint64)
    _members(read_only(indices), read_only(coordinates), words)
    return words


@compile_loop
def _members(indices: Any, coordinates: Any, words: Any) -> None:
    low, last = 0, indices.size - 1
    for j in range(coordinates.size):
        wanted, step = coordinates[j], 1
        while low + step <= last and indices[low + step] < wanted:
            step *= 2
        high = min(low + step, last)
        low += step // 2
        while low < high:  # the first entry that is not below the wanted one
            middle = (low + high) // 2
            if indices[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        hit = np.uint64(indices[low] == wanted)
        words[j >> 6] |= hit << np.uint64(j & 63)


def warm() -> None:
    """Compile every loop for all its types."""
    one, row = np.ones((1, 1), np.uint64), np.zeros(1, np.int64)
    values: list[npt.NDArray[Any]] = [np.zeros((1, 1), np.uint32), one]
    for each in values:
        band_keys(each, 1, 1)
        difference(each[0], each[0])
        members(each[0], np.zeros(64, each.dtype))
        bits_at(one[0], np.zeros(64, each.dtype))
    best(np.zeros(1, np.int16), 0, 1)
    and_count_rows(one, one[0], row)
    match_counts_at(np.zeros((1, 8), np.uint8), np.zeros(8, np.uint8), row)
    sealed_counts(np.ones((1, 16), np.uint64), one[0], row, one[0], 1)
    seal(one[0], 1, 1, 1)
