"""Retrieval in numpy: band keys, the best rows, coordinate sketches and their sealed slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int16]
Rows = npt.NDArray[np.int64]

BLOCK = 1 << 20
"""About how many bytes a step: numpy's temporaries stay in the second-level cache."""


def band_keys(values: npt.NDArray[Any], bands: int, rows: int) -> Words:
    """One key a band: the band's number and its values, folded one after the other by ``mix64``.

    ``key = mix64(band)``, then ``key = mix64(key ^ value)`` for each of the band's values.

    Args:
        values: uint32 or uint64, shape ``(n, h)`` with ``h >= bands * rows``.
        bands: b.
        rows: r; band i holds the values ``i * r`` to ``(i + 1) * r - 1``.

    Returns:
        Shape ``(n, bands)``.
    """
    banded = values[:, : bands * rows].reshape(-1, bands, rows)
    keys = np.broadcast_to(mix64(np.arange(bands, dtype=np.uint64)), banded.shape[:2])
    for row in range(rows):
        keys = mix64(keys ^ banded[:, :, row].astype(np.uint64))
    return np.ascontiguousarray(keys)


def mix64(x: Words) -> Words:
    """One step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection of 64 bits."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def difference(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The entries of ``a`` that ``b`` has not; both ascending, distinct and of one dtype."""
    if b.size == 0:
        return a.copy()
    found = np.minimum(np.searchsorted(b, a), b.size - 1)
    left: npt.NDArray[Any] = a[b[found] != a]
    return left


def best(counts: Counts, most: int, count: int) -> Rows:
    """The rows of the ``count`` largest counts, ascending, and those that tie with the last.

    Args:
        counts: ``most`` at most, shape ``(n,)``; negative ones are never taken.
        most: the largest count there can be.
        count: fewer come back where fewer are not negative.
    """
    if count <= 0:
        return np.empty(0, np.int64)
    per_count = np.bincount(counts[counts >= 0], minlength=most + 1)
    at_least = np.cumsum(per_count[::-1])[::-1]
    enough = np.flatnonzero(at_least >= count)
    return np.flatnonzero(counts >= (enough[-1] if enough.size else 0))


def and_count_rows(rows: Words, query: Words, at: Rows) -> npt.NDArray[np.int64]:
    """How many bits the query ``(w,)`` shares with each of the rows ``at`` of ``(n, w)``."""
    shared = np.empty(at.size, np.int64)
    step = max(1, BLOCK // (8 * query.size))
    for begin in range(0, at.size, step):
        some = rows[at[begin : begin + step]] & query
        shared[begin : begin + step] = np.bitwise_count(some).sum(axis=1, dtype=np.int64)
    return shared


def match_counts_at(rows: npt.NDArray[np.uint8], query: npt.NDArray[np.uint8], at: Rows) -> Counts:
    """How many bytes the query ``(h,)`` shares with each of the rows ``at`` of ``(n, h)``."""
    matches = np.empty(at.size, np.int16)
    step = max(1, BLOCK // max(1, query.size))
    for begin in range(0, at.size, step):
        some = rows[at[begin : begin + step]] == query
        matches[begin : begin + step] = some.sum(axis=1, dtype=np.int16)
    return matches


def sealed_counts(
    slots: Words, query: Words, at: Rows, tags: Words, part: int
) -> npt.NDArray[np.int64]:
    """Count the members that sketches in slots share with one; slots that are not whole give -1.

    A slot is a header of eight words and the words of a sketch. The header is its tag, its members,
    those of them in its first part, the seals of that part and of all, and three zeros.

    Args:
        slots: shape ``(n, 8 + w)`` or wider; another process may be writing to them.
        query: the words of one sketch, or the first part of them.
        at: which slots, shape ``(m,)``.
        tags: which tag each of them has to have, shape ``(m,)``.
        part: 0 where the query is the first part, 1 where it is all.

    Returns:
        Shared and own members in that part, ``(m, 2)``; -1 and -1 where tag or seal is another.
    """
    counts = np.full((at.size, 2), -1, np.int64)
    for i in range(at.size):
        slot = slots[at[i]].copy()  # counted and checked are the same copy, even during a write
        words, (tag, whole, first, *seals) = slot[8 : 8 + query.size], slot[:5].tolist()
        if tag == tags[i] and seal(words, tag, whole, first) == seals[part]:
            shared = np.bitwise_count(words & query).sum(dtype=np.int64)
            counts[i] = shared, np.array([first, whole], np.uint64).view(np.int64)[part]
    return counts


def seal(words: Words, tag: int, members: int, first: int) -> int:
    """A checksum of a sketch or its first part, of what it is a sketch of, and of its members.

    The sums (modulo 2^64) of the words in blocks of 64, the last one shorter, folded one after the
    other by ``mix64`` as values are in :func:`band_keys`; before them tag, members and ``first``.

    Args:
        words: shape ``(w,)``.
        tag: 0 to 2^64 - 1.
        members: 0 to 2^64 - 1.
        first: how many of the members are in the first part.
    """
    key = np.zeros(1, np.uint64)
    for number in (tag, members, first):
        key = mix64(key ^ np.uint64(number))
    for begin in range(0, words.size, 64):
        key = mix64(key ^ words[begin : begin + 64].sum(dtype=np.uint64))
    return int(key[0])


def bits_at(words: Words, coordinates: npt.NDArray[Any]) -> Words:
    """Gather the bits of a bitmap: bit j is bit ``coordinates[j]``, and all lie within the bitmap.

    Args:
        words: shape ``(w,)``.
        coordinates: uint32 or uint64, shape ``(size,)``, size a multiple of 64.

    Returns:
        Shape ``(size / 64,)``.
    """
    at = coordinates.astype(np.uint64, copy=False)
    bits = (words[at >> np.uint64(6)] >> (at & np.uint64(63))).astype(np.uint8) & np.uint8(1)
    return np.packbits(bits, bitorder="little").view(np.uint64)


def members(indices: npt.NDArray[Any], coordinates: npt.NDArray[Any]) -> Words:
    """Mark the sampled indices: bit j is set where ``coordinates[j]`` is one of the indices.

    Args:
        indices: ascending, distinct, at least one.
        coordinates: ascending, of the same dtype, shape ``(size,)``, size a multiple of 64.

    Returns:
        Shape ``(size / 64,)``.
    """
    found = np.minimum(np.searchsorted(indices, coordinates), indices.size - 1)
    return np.packbits(indices[found] == coordinates, bitorder="little").view(np.uint64)
