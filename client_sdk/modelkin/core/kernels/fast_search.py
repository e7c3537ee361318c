"""The loops of ``reference_search``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.compiled import compiled, popcount, read_only

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int16]
AnyCounts = Counts | npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]


def band_keys(values: npt.NDArray[Any], bands: int, rows: int) -> Words:
    keys = np.empty((values.shape[0], bands), np.uint64)
    _band_keys(read_only(values), rows, keys)
    return keys


@compiled
def _mix64(x: Any) -> Any:
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
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


@compiled
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


def planes(values: npt.NDArray[Any], bits: int, first: int) -> Words:
    n, h = values.shape
    made = np.zeros((n, bits, -(-h // 64)), np.uint64)
    _planes(read_only(values), first, made)
    return made


@compiled
def _planes(values: Any, first: int, made: Any) -> None:
    for i in range(values.shape[0]):
        for plane in range(made.shape[1]):
            shift = np.uint64(first + plane)
            for word in range(made.shape[2]):
                some, gathered = values[i, 64 * word : 64 * word + 64], np.uint64(0)
                for j in range(some.size):
                    bit = (np.uint64(some[j]) >> shift) & np.uint64(1)
                    gathered |= bit << np.uint64(j)
                made[i, plane, word] = gathered


def plane_matches(rows: Words, query: Words, num_perm: int) -> Counts:
    matches = np.empty(rows.shape[0], np.int16)
    if query.shape[0] == 4:
        flat = read_only(rows).reshape(rows.shape[0], query.size)
        _four_plane_matches(flat, read_only(query).reshape(-1), num_perm, matches)
    else:
        _plane_matches(read_only(rows), read_only(query), num_perm, matches)
    return matches


@compiled
def _four_plane_matches(rows: Any, query: Any, num_perm: int, matches: Any) -> None:
    # One row's words in one line, the planes named: so it becomes vector code, at memory's speed.
    w = query.size // 4
    for i in range(rows.shape[0]):
        row, mismatches = rows[i], np.uint64(0)
        for j in range(w):
            mismatches += popcount(
                (row[j] ^ query[j])
                | (row[w + j] ^ query[w + j])
                | (row[2 * w + j] ^ query[2 * w + j])
                | (row[3 * w + j] ^ query[3 * w + j])
            )
        matches[i] = np.int16(num_perm - np.int64(mismatches))


@compiled
def _plane_matches(rows: Any, query: Any, num_perm: int, matches: Any) -> None:
    for i in range(rows.shape[0]):
        mismatches = np.uint64(0)
        for word in range(query.shape[1]):
            differing = np.uint64(0)
            for plane in range(query.shape[0]):
                differing |= rows[i, plane, word] ^ query[plane, word]
            mismatches += popcount(differing)
        matches[i] = np.int16(num_perm - np.int64(mismatches))


def add_mismatches(rows: Words, query: Words, at: Rows, mismatches: Words) -> None:
    _add_mismatches(read_only(rows), read_only(query), read_only(at), mismatches)


@compiled
def _add_mismatches(rows: Any, query: Any, at: Any, mismatches: Any) -> None:
    for i in range(at.size):
        row = rows[at[i]]
        for plane in range(query.shape[0]):
            for word in range(query.shape[1]):
                mismatches[i, word] |= row[plane, word] ^ query[plane, word]


def best(counts: AnyCounts, most: int, count: int) -> Rows:
    # One more than asked for: without a branch every row is written, then the cursor moves or not.
    rows = np.empty(min(count, counts.size) + 1, np.int64)
    found = int(_best(read_only(counts), np.zeros((4, most + 2), np.int64), count, rows))
    return rows[:found]


@compiled
def _best(counts: Any, tallies: Any, count: int, rows: Any) -> Any:
    last, ties = _last_taken(counts, tallies, count)
    at = np.uint64(0)
    for i in range(counts.size):
        rows[at] = i
        tie = np.int64(counts[i] == last)
        at += np.uint64((counts[i] > last) | ((tie > 0) & (ties > 0)))
        ties -= tie
    return at


@compiled
def _last_taken(counts: Any, tallies: Any, count: int) -> Any:
    """The least count that is taken, and how many of those that have it."""
    # Four tallies in turn: equal counts in a row need not wait for each other's addition.
    for begin in range(0, counts.size, 4):
        some = counts[begin : begin + 4]
        for j in range(some.size):
            tallies[j, max(np.int64(some[j]), np.int64(-1)) + 1] += 1
    last, taken = tallies.shape[1] - 2, np.int64(0)
    while True:
        here = tallies[0, last + 1] + tallies[1, last + 1] + tallies[2, last + 1]
        here += tallies[3, last + 1]
        if taken + here >= count or last == 0:
            return last, min(here, count - taken)
        taken += here
        last -= 1


def and_count_rows(rows: Words, query: Words, at: Rows) -> npt.NDArray[np.int64]:
    shared = np.empty(at.size, np.int64)
    _and_count_rows(read_only(rows), read_only(query), read_only(at), shared)
    return shared


@compiled
def _and_count_rows(rows: Any, query: Any, at: Any, shared: Any) -> None:
    for i in range(at.size):
        row, count = rows[at[i]], np.uint64(0)
        for word in range(query.size):
            count += popcount(row[word] & query[word])
        shared[i] = np.int64(count)


def members(indices: npt.NDArray[Any], coordinates: npt.NDArray[Any]) -> Words:
    words = np.zeros(coordinates.size // 64, np.uint64)
    _members(read_only(indices), read_only(coordinates), words)
    return words


@compiled
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
    """Every loop here, for every type it will meet."""
    one, row = np.ones((1, 1), np.uint64), np.zeros(1, np.int64)
    values: list[npt.NDArray[Any]] = [np.zeros((1, 1), np.uint32), one]
    for each in values:
        band_keys(each, 1, 1)
        planes(each, 1, 0)
        difference(each[0], each[0])
        members(each[0], np.zeros(64, each.dtype))
    for bits in (1, 4):
        plane_matches(np.ones((1, bits, 1), np.uint64), np.ones((bits, 1), np.uint64), 64)
    add_mismatches(one.reshape(1, 1, 1), one, row, one.copy())
    best(np.zeros(1, np.int16), 0, 1)
    best(np.zeros(1, np.int32), 0, 1)
    and_count_rows(one, one[0], row)
