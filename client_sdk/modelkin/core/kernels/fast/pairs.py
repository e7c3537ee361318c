"""The loops of ``reference_pairs``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.loops import compile_loop, popcount, read_only
from modelkin.core.kernels.reference.pairs import LAST_ROW, ROW_BITS

Counts = npt.NDArray[np.int16]
Keys = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def match_table(rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> Counts:
    matches = np.empty((rows.shape[0], columns.shape[0]), np.int16)
    _match_table(read_only(rows), read_only(columns), matches)
    return matches


@compile_loop
def _match_table(rows: Any, columns: Any, matches: Any) -> None:
    # A few columns at a time: they stay in the nearest cache while all rows pass by.
    step = max(1, 32768 // max(1, columns.shape[1] * columns.itemsize))
    for begin in range(0, columns.shape[0], step):
        for i in range(rows.shape[0]):
            row = rows[i]
            for j in range(begin, min(begin + step, columns.shape[0])):
                column, equal = columns[j], np.int32(0)
                for k in range(row.size):
                    equal = np.int32(equal + np.int32(row[k] == column[k]))
                matches[i, j] = np.int16(equal)


def keep_nearest(values: npt.NDArray[Any], low: Words, begin: int, end: int, nearest: Keys) -> None:
    least = nearest[:, 0] >> ROW_BITS
    _keep_nearest(read_only(values), read_only(low), begin, end, nearest, least)


@compile_loop
def _keep_nearest(values: Any, low: Any, begin: int, end: int, nearest: Any, least: Any) -> None:
    # A few later rows at a time: their bytes stay in the nearest cache while all rows pass by.
    step = max(1, 32768 // max(1, 8 * low.shape[1]))
    for first in range(begin + 1, values.shape[0], step):
        last = min(first + step, values.shape[0])
        for i in range(begin, min(end, last)):
            for j in range(max(first, i + 1), last):
                most = values.shape[1] - _differing_bytes(low[i], low[j])
                if most >= least[i] or most >= least[j]:
                    matches = _equal_values(values[i], values[j]) << ROW_BITS
                    _keep(nearest[i], matches | (LAST_ROW - j))
                    _keep(nearest[j], matches | (LAST_ROW - i))
                    least[i], least[j] = nearest[i, 0] >> ROW_BITS, nearest[j, 0] >> ROW_BITS


@compile_loop
def _differing_bytes(a: Any, b: Any) -> Any:
    low, high = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x8080808080808080)
    count = np.uint64(0)
    for word in range(a.size):
        bits = a[word] ^ b[word]
        count += popcount((((bits & low) + low) | bits) & high)  # the top bit of each such byte
    return np.int64(count)


@compile_loop
def _equal_values(a: Any, b: Any) -> Any:
    equal = np.int32(0)
    for k in range(a.size):
        equal = np.int32(equal + np.int32(a[k] == b[k]))
    return np.int64(equal)


@compile_loop
def _keep(heap: Any, key: Any) -> None:
    """Let a key take the place of the least one of a heap, if it is larger."""
    if key <= heap[0]:
        return
    at = 0
    while True:
        child = 2 * at + 1
        if child + 1 < heap.size and heap[child + 1] < heap[child]:
            child += 1
        if child >= heap.size or heap[child] >= key:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = key


def warm() -> None:
    """Compile the loops for all their types."""
    for dtype in (np.uint8, np.uint32, np.uint64):
        match_table(np.zeros((1, 1), dtype), np.zeros((1, 1), dtype))
    for dtype in (np.uint32, np.uint64):
        values, low = np.zeros((2, 1), dtype), np.zeros((2, 1), np.uint64)
        keep_nearest(values, low, 0, 2, np.full((2, 1), -1, np.int64))
