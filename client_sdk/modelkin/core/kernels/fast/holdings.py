"""The loops of ``reference_holdings``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.loops import compile_loop, popcount, read_only

Words = npt.NDArray[np.uint64]


def column_counts(rows: Words, columns: int) -> npt.NDArray[np.int32]:
    counts = np.zeros(rows.shape[1] * 64, np.int32)
    _column_counts(read_only(rows), counts)
    return counts[:columns]


@compile_loop
def _column_counts(rows: Any, counts: Any) -> None:
    for i in range(rows.shape[0]):
        for word in range(rows.shape[1]):
            bits, here = rows[i, word], counts[64 * word : 64 * word + 64]
            for j in range(64):
                here[j] += np.int32((bits >> np.uint64(j)) & np.uint64(1))


def weighted_sums(rows: Words, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    sums = np.zeros(rows.shape[0], np.int64)
    _weighted_sums(read_only(rows), read_only(weights), sums)
    return sums


@compile_loop
def _weighted_sums(rows: Any, weights: Any, sums: Any) -> None:
    for i in range(rows.shape[0]):
        total = np.int64(0)
        for word in range(rows.shape[1]):
            bits, some = rows[i, word], weights[64 * word : 64 * word + 64]
            for j in range(some.size):
                total += some[j] * np.int64((bits >> np.uint64(j)) & np.uint64(1))
        sums[i] = total


def set_bits(words: Words, dtype: Any) -> npt.NDArray[Any]:
    places = np.empty(int(_count_bits(read_only(words))), dtype)
    _set_bits(read_only(words), places)
    return places


@compile_loop
def _count_bits(words: Any) -> Any:
    count = np.uint64(0)
    for i in range(words.size):
        count += popcount(words[i])
    return count


@compile_loop
def _set_bits(words: Any, places: Any) -> None:
    found = np.uint64(0)
    for i in range(words.size):
        bits = words[i]
        while bits:
            rest = bits & (bits - np.uint64(1))  # without the lowest
            places[found] = np.uint64(64 * i) + popcount((bits ^ rest) - np.uint64(1))
            found += np.uint64(1)
            bits = rest


def warm() -> None:
    """Compile every loop of this module for all its types."""
    one = np.ones((1, 1), np.uint64)
    for dtype in (np.uint32, np.uint64):
        set_bits(one[0], dtype)
    column_counts(one, 1)
    weighted_sums(one, np.ones(1, np.int64))
