"""Retrieval in numpy: band keys, bit planes, the best rows, coordinate sketches."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int16]
AnyCounts = Counts | npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]

BLOCK = 1 << 20
"""Bytes a step, about: what numpy makes on the way stays in the second-level cache."""


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


def planes(values: npt.NDArray[Any], bits: int, first: int) -> Words:
    """Bits ``first`` to ``first + bits - 1`` of every value, a plane for each bit.

    Args:
        values: uint32 or uint64, shape ``(n, h)``.
        bits: how many planes.
        first: the lowest bit.

    Returns:
        Shape ``(n, bits, ceil(h / 64))``. Bit j % 64 of word j // 64 of a plane is that of value
        j; the bits behind value h - 1 are zero.
    """
    n, h = values.shape
    flags = np.zeros((n, bits, -(-h // 64) * 64), np.uint8)
    for plane in range(bits):
        shift = values.dtype.type(first + plane)
        flags[:, plane, :h] = (values >> shift) & values.dtype.type(1)
    return np.packbits(flags, axis=2, bitorder="little").view(np.uint64)


def plane_matches(rows: Words, query: Words, num_perm: int) -> Counts:
    """How many of the h values of each row equal the query's in all bits of the planes.

    Args:
        rows: shape ``(n, bits, w)``.
        query: shape ``(bits, w)``.
        num_perm: h, which the zero bits behind the last value must not count towards.

    Returns:
        Shape ``(n,)``.
    """
    matches = np.empty(rows.shape[0], np.int16)
    step = max(1, BLOCK // (8 * query.size))
    for at in range(0, rows.shape[0], step):
        differing = np.bitwise_or.reduce(rows[at : at + step] ^ query, axis=1)
        matches[at : at + step] = num_perm - np.bitwise_count(differing).sum(axis=1, dtype=np.int16)
    return matches


def add_mismatches(rows: Words, query: Words, at: Rows, mismatches: Words) -> None:
    """Sets in ``mismatches`` ``(m, w)`` the bits of all values in which row ``at[i]`` differs."""
    mismatches |= np.bitwise_or.reduce(rows[at] ^ query, axis=1)


def best(counts: AnyCounts, most: int, count: int) -> Rows:
    """The rows of the ``count`` largest counts, ascending; of equal ones the first rows.

    Args:
        counts: ``most`` at most, shape ``(n,)``; negative ones are never taken.
        most: the largest count there can be.
        count: at least 0; fewer come back where fewer are not negative.
    """
    per_count = np.bincount(counts[counts >= 0], minlength=most + 1)
    at_least = np.cumsum(per_count[::-1])[::-1]
    enough = np.flatnonzero(at_least >= count)
    last = int(enough[-1]) if enough.size else 0
    above = int(at_least[last + 1]) if last < most else 0
    taken = counts > last
    taken[np.flatnonzero(counts == last)[: max(0, count - above)]] = True
    return np.flatnonzero(taken)


def and_count_rows(rows: Words, query: Words, at: Rows) -> npt.NDArray[np.int64]:
    """How many bits the query ``(w,)`` shares with each of the rows ``at`` of ``(n, w)``."""
    shared = np.empty(at.size, np.int64)
    step = max(1, BLOCK // (8 * query.size))
    for begin in range(0, at.size, step):
        some = rows[at[begin : begin + step]] & query
        shared[begin : begin + step] = np.bitwise_count(some).sum(axis=1, dtype=np.int64)
    return shared


def members(indices: npt.NDArray[Any], coordinates: npt.NDArray[Any]) -> Words:
    """Bit j is set where ``coordinates[j]`` is one of the indices.

    Args:
        indices: ascending, distinct, at least one.
        coordinates: ascending, of the same dtype, shape ``(size,)``, size a multiple of 64.

    Returns:
        Shape ``(size / 64,)``.
    """
    found = np.minimum(np.searchsorted(indices, coordinates), indices.size - 1)
    return np.packbits(indices[found] == coordinates, bitorder="little").view(np.uint64)
