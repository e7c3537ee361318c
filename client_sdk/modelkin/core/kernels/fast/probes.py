"""The loops of ``reference_probes``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.loops import compile_loop, read_only, scratch
from modelkin.core.kernels.reference.probes import INVERSE_FACTORS

Narrow = npt.NDArray[np.uint32]
Wide = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]

FIRST, SECOND = (np.uint32(factor) for factor in INVERSE_FACTORS)


def probe_list(table: Narrow, indices: Narrow) -> Rows:
    found = np.empty(table.shape[1], np.int64)
    columns, some = np.arange(found.size), np.empty((2, found.size), np.uint32)
    _probe_list(read_only(table), read_only(indices), columns, some, found)
    return found


@compile_loop
def _probe_list(table: Any, indices: Any, columns: Any, some: Any, found: Any) -> None:
    """Search all open columns side by side: each step loads from all of them at once."""
    wanted, places = some[0], some[1]
    open_: Any = found.size
    found[:] = table.shape[0]
    for row in range(table.shape[0]):
        for i in range(open_):
            wanted[i] = table[row, columns[i]]
            places[i] = 0
        left = indices.size
        while left > 1:
            half = np.uint32(left >> 1)
            for i in range(open_):
                middle = np.uint32(places[i] + half)
                places[i] = middle if indices[middle] <= wanted[i] else places[i]
            left -= left >> 1
        still: Any = 0
        for i in range(open_):
            column = columns[i]
            member = indices[places[i]] == wanted[i]
            found[column] = row if member else found[column]
            columns[still] = column
            still += np.int64(not member)
        open_ = still
        if open_ == 0:
            return


def probe_bitmap(table: Narrow, words: Wide) -> Rows:
    found = np.empty(table.shape[1], np.int64)
    _probe_bitmap(read_only(table), read_only(words), np.arange(found.size), found)
    return found


@compile_loop
def _probe_bitmap(table: Any, words: Any, columns: Any, found: Any) -> None:
    open_: Any = found.size
    found[:] = table.shape[0]
    for row in range(table.shape[0]):
        still: Any = 0
        for i in range(open_):
            column = columns[i]
            index = np.uint64(table[row, column])
            member = (words[index >> np.uint64(6)] >> (index & np.uint64(63))) & np.uint64(1)
            found[column] = row if member else found[column]
            columns[still] = column
            still += np.int64(member == np.uint64(0))
        open_ = still
        if open_ == 0:
            return


def least_preimages(a: Narrow, b: Narrow, num_parameters: int, depth: int) -> Narrow:
    inverses = np.array([pow(int(factor), -1, 2**32) for factor in a], np.uint32)
    table = np.empty((depth, a.size), np.uint32)
    block, last = scratch(2048, np.uint32), np.uint32(num_parameters - 1)
    _least_preimages(inverses, read_only(b), last, block, table)
    return table


@compile_loop
def _least_preimages(inverses: Any, b: Any, last: Any, block: Any, table: Any) -> None:
    for j in range(inverses.size):
        inverse, done = inverses[j], 0
        mixed = np.uint32(np.uint32(0) - np.uint32(inverse * b[j]))
        while done < table.shape[0]:
            for i in range(2048):
                x = np.uint32(mixed + np.uint32(inverse * np.uint32(i)))
                x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * FIRST)
                x = np.uint32(x ^ (x >> np.uint32(13)) ^ (x >> np.uint32(26)))
                x = np.uint32(x * SECOND)
                block[i] = np.uint32(x ^ (x >> np.uint32(16)))
            mixed = np.uint32(mixed + np.uint32(inverse * np.uint32(2048)))
            for begin in range(0, 2048, 32):
                least = np.uint32(2**32 - 1)
                for i in range(begin, begin + 32):
                    least = block[i] if block[i] < least else least
                if least <= last:
                    for i in range(begin, begin + 32):
                        if block[i] <= last and done < table.shape[0]:
                            table[done, j] = block[i]
                            done += 1


def least_hash_indices(a: Any, b: Any, num_parameters: int, limit: int, most: int) -> Any:
    kept = np.zeros((a.size, most), np.uint32)
    counts, narrow = np.zeros(a.size, np.int64), a.dtype == np.uint32
    loop = _least_hashed32 if narrow else _least_hashed64
    mixed, values = (scratch(2048 if narrow else 1024, a.dtype) for _ in range(2))
    last = a.dtype.type(limit)
    loop(read_only(a), read_only(b), num_parameters, last, mixed, values, kept, counts)
    return kept, counts


@compile_loop
def _keep(values: Any, limit: Any, begin: int, kept: Any, count: Any) -> None:
    """Keep the positions of the values up to the limit; most stretches of 64 hold none."""
    for first in range(0, values.size, 64):
        stretch = values[first : first + 64]
        least = stretch[0]
        for i in range(stretch.size):
            least = stretch[i] if stretch[i] < least else least
        if least <= limit:
            for i in range(stretch.size):
                if stretch[i] <= limit:
                    if count[0] < kept.size:
                        kept[count[0]] = begin + first + i
                    count[0] += 1


@compile_loop
def _least_hashed32(
    a: Any,
    b: Any,
    num_parameters: int,
    limit: Any,
    mixed: Any,
    values: Any,
    kept: Any,
    counts: Any,
) -> None:
    for begin in range(0, num_parameters, 2048):
        size = min(2048, num_parameters - begin)
        for i in range(size):
            x = np.uint32(begin + i)
            x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B))
            x = np.uint32(np.uint32(x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35))
            mixed[i] = np.uint32(x ^ (x >> np.uint32(16)))
        for j in range(a.size):
            factor, offset = a[j], b[j]
            for i in range(size):
                values[i] = np.uint32(np.uint32(factor * mixed[i]) + offset)
            _keep(values[:size], limit, begin, kept[j], counts[j : j + 1])


@compile_loop
def _least_hashed64(
    a: Any,
    b: Any,
    num_parameters: int,
    limit: Any,
    mixed: Any,
    values: Any,
    kept: Any,
    counts: Any,
) -> None:
    for begin in range(0, num_parameters, 1024):
        size = min(1024, num_parameters - begin)
        for i in range(size):
            x = np.uint64(begin + i)
            x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
            x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
            mixed[i] = x ^ (x >> np.uint64(33))
        for j in range(a.size):
            factor, offset = a[j], b[j]
            for i in range(size):
                values[i] = factor * mixed[i] + offset
            _keep(values[:size], limit, begin, kept[j], counts[j : j + 1])


def warm() -> None:
    """Compile every loop of this module for all its types."""
    narrow, wide = np.zeros(1, np.uint32), np.zeros(1, np.uint64)
    ones = (narrow + np.uint32(1), wide + np.uint64(1))
    least_preimages(ones[0], narrow, 1, 1)
    least_hash_indices(ones[0], narrow, 1, 0, 1)
    least_hash_indices(ones[1], wide, 1, 0, 1)
    probe_list(narrow.reshape(1, 1), narrow)
    probe_bitmap(narrow.reshape(1, 1), wide)
