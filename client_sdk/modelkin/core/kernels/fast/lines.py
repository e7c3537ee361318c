"""The loops of ``reference.lines``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.loops import compile_loop, read_only, scratch
from modelkin.core.kernels.reference.lines import WINDOWS

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]

_TINY = np.float32(1e-3)
"""A guess below which all magnitudes of a line are gathered."""


def add_squares(values: Floats, columns: Words, rows: Words) -> None:
    _add_squares(read_only(values).view(np.uint32), columns, rows)


@compile_loop
def _add_squares(bits: Any, columns: Any, rows: Any) -> None:
    m, n = bits.shape
    own = np.zeros(WINDOWS, np.uint64)
    for i in range(m):
        own[:] = 0
        for begin in range(0, n, 256):
            for j in range(begin, min(begin + 256, n)):
                exponent = np.int64(bits[i, j] >> np.uint32(23)) & 255
                if exponent == 0:
                    continue
                mantissa = (np.int64(bits[i, j]) & 0x7FFFFF | 0x800000) + 0x800 >> 12
                term = np.uint64(mantissa * mantissa << 2 * (exponent & 15))
                own[exponent >> 4] += term
                columns[exponent >> 4, j] += term
            for window in range(WINDOWS - 1):
                own[window + 1] += own[window] >> np.uint64(32)
                own[window] &= np.uint64(0xFFFFFFFF)
        for window in range(WINDOWS):
            rows[window, i] += own[window]
        if i % 256 == 255 or i == m - 1:
            _carry(columns)
    _carry(rows)


@compile_loop
def _carry(sums: Any) -> None:
    for window in range(WINDOWS - 1):
        for j in range(sums.shape[1]):
            sums[window + 1, j] += sums[window, j] >> np.uint64(32)
            sums[window, j] &= np.uint64(0xFFFFFFFF)


def line_keys(
    lines: Floats, scales: Floats, hashes: npt.NDArray[np.uint32], size: int, members: int
) -> tuple[Words, Floats]:
    keys, least = np.zeros(len(lines), np.uint64), np.zeros(len(lines), np.float32)
    room = lines.shape[1]
    _line_keys(
        read_only(lines),
        read_only(scales),
        read_only(hashes),
        size,
        members,
        scratch(room, np.float32),
        scratch(room, np.float32),
        scratch(room, np.uint32),
        keys,
        least,
    )
    return keys, least


@compile_loop
def _line_keys(
    lines: Any,
    scales: Any,
    hashes: Any,
    size: int,
    members: int,
    found: Any,
    order: Any,
    places: Any,
    keys: Any,
    leasts: Any,
) -> None:
    # Lines of a matrix are alike once they are scaled: what the last one needed is a good guess of
    # the least magnitude in a set. A guess decides the time that a line takes, and no result.
    m, n = lines.shape
    first = np.empty(members, np.uint32)
    guess = np.float32(0)
    for i in range(m):
        count = _above(lines[i], scales, guess, found, places)
        while count < size:
            guess = np.float32(0.5) * guess if guess > _TINY else np.float32(0)
            count = _above(lines[i], scales, guess, found, places)
        for j in range(count):
            order[j] = found[j]
            places[j] = hashes[places[j]]
        least = _nth_largest(order, count, size)
        guess = np.float32(0.9) * least
        if least > 0:
            key = _key(found, places, count, least, n, size, first)
            if key:
                keys[i], leasts[i] = key, least


@compile_loop
def _key(found: Any, ranks: Any, count: int, least: Any, n: int, size: int, first: Any) -> Any:
    """The key of a line of which all magnitudes in its set are among those found; 0 for none."""
    held, members = 0, first.size
    first[:] = np.uint32(0xFFFFFFFF)
    for j in range(count):
        if found[j] >= least:
            held += 1
            rank = ranks[j]
            for k in range(members):
                if rank < first[k]:
                    first[k], rank = rank, first[k]
    key = np.uint64(n)
    for k in range(members):
        key = _mixed(key * np.uint64(0x9E3779B97F4A7C15) + np.uint64(first[k]))
    return key if held <= 2 * size else np.uint64(0)


def keep_largest(
    values: Floats,
    scales: Floats,
    ranks: npt.NDArray[np.uint32],
    size: int,
    bounds: Floats,
    counts: npt.NDArray[np.int64],
    magnitudes: Floats,
    kept: npt.NDArray[np.uint32],
) -> None:
    _keep_largest(
        read_only(values),
        read_only(scales),
        read_only(ranks),
        size,
        bounds,
        counts,
        magnitudes,
        kept,
        scratch(values.shape[1], np.int32),
        scratch(magnitudes.shape[1], np.float32),
    )


@compile_loop
def _keep_largest(
    values: Any,
    scales: Any,
    ranks: Any,
    size: int,
    bounds: Any,
    counts: Any,
    magnitudes: Any,
    kept: Any,
    reached: Any,
    order: Any,
) -> None:
    m, n = values.shape
    room = magnitudes.shape[1]
    for i in range(m):
        # Few entries reach their bounds: to list them first, without a branch, is four times as
        # fast as to keep each at once.
        found: Any = 0
        for j in range(n):
            reached[found] = j
            found += np.int64(np.float32(abs(values[i, j]) * scales[i]) >= bounds[j])
        for k in range(found):
            j = reached[k]
            count = counts[j]
            if count == room:
                count, bound = _compact(magnitudes[j], kept[j], size, order)
                bounds[j] = bound
                counts[j] = count
            magnitude = np.float32(abs(values[i, j]) * scales[i])
            if magnitude >= bounds[j]:
                magnitudes[j, count] = magnitude
                kept[j, count] = ranks[i]
                counts[j] = count + 1


@compile_loop
def _compact(magnitudes: Any, kept: Any, size: int, order: Any) -> Any:
    """Move the entries that stay to the front, and return how many there are and their bound."""
    for k in range(magnitudes.size):
        order[k] = magnitudes[k]
    bound = _nth_largest(order, magnitudes.size, size)
    above: Any = 0
    for k in range(magnitudes.size):
        above += np.int64(magnitudes[k] > bound)
    ties: Any = 2 * size + 1 - above
    stay = 0
    for k in range(magnitudes.size):
        is_tie = magnitudes[k] == bound
        if magnitudes[k] > bound or (is_tie and ties > 0):
            ties -= np.int64(is_tie)
            magnitudes[stay], kept[stay] = magnitudes[k], kept[k]
            stay += 1
    if stay > 2 * size:
        bound = np.nextafter(bound, np.float32(np.inf))
    return stay, bound


def keys_of_largest(
    counts: npt.NDArray[np.int64],
    magnitudes: Floats,
    kept: npt.NDArray[np.uint32],
    length: int,
    size: int,
    members: int,
) -> tuple[Words, Floats]:
    keys, least = np.zeros(counts.size, np.uint64), np.zeros(counts.size, np.float32)
    _keys_of_largest(
        read_only(counts),
        read_only(magnitudes),
        read_only(kept),
        length,
        size,
        members,
        scratch(magnitudes.shape[1], np.float32),
        keys,
        least,
    )
    return keys, least


@compile_loop
def _keys_of_largest(
    counts: Any,
    magnitudes: Any,
    kept: Any,
    length: int,
    size: int,
    members: int,
    order: Any,
    keys: Any,
    leasts: Any,
) -> None:
    first = np.empty(members, np.uint32)
    for j in range(counts.size):
        count = counts[j]
        if count < size:
            continue
        for k in range(count):
            order[k] = magnitudes[j, k]
        least = _nth_largest(order, count, size)
        key = _key(magnitudes[j], kept[j], count, least, length, size, first)
        if key:
            keys[j], leasts[j] = key, least


def members_of_sets(lines: Floats, scales: Floats, least: Floats, first: int) -> Words:
    members = np.empty(lines.size if lines.size < 4096 else lines.size // 8, np.uint64)
    arguments = read_only(lines), read_only(scales), read_only(least), first
    count = _members_of_sets(*arguments, members)
    if count > members.size:
        members = np.empty(count, np.uint64)
        _members_of_sets(*arguments, members)
    return members[:count].copy()


@compile_loop
def _members_of_sets(lines: Any, scales: Any, least: Any, first: int, members: Any) -> Any:
    """Write the members while there is room, and return how many there are."""
    m, n = lines.shape
    count = 0
    for i in range(m):
        if least[i] > 0:
            for j in range(n):
                if np.float32(abs(lines[i, j]) * scales[j]) >= least[i]:
                    if count < members.size:
                        members[count] = first + i * n + j
                    count += 1
    return count


@compile_loop
def _above(line: Any, scales: Any, least: Any, found: Any, places: Any) -> Any:
    """Gather the scaled magnitudes that are not below a bound, and their places."""
    count: Any = 0
    for j in range(line.size):  # without a branch, as in _keep_largest
        places[count] = j
        count += np.int64(np.float32(abs(line[j]) * scales[j]) >= least)
    for k in range(count):
        at = np.int64(places[k])
        found[k] = np.float32(abs(line[at]) * scales[at])
    return count


@compile_loop
def _nth_largest(values: Any, count: int, n: int) -> Any:
    """The n-th largest of the first values, which change places: Hoare's selection."""
    low, high, wanted = 0, count - 1, n - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    return values[wanted]


@compile_loop
def _mixed(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def warm() -> None:
    """Compile every loop of this module for all its types."""
    values, sums = np.ones((8, 8), np.float32), np.zeros((WINDOWS, 8), np.uint64)
    add_squares(values, sums, sums.copy())
    ranks, counts = np.arange(8, dtype=np.uint32), np.zeros(8, np.int64)
    line_keys(values, values[0], ranks, 4, 2)
    kept = np.zeros((8, 8), np.float32), np.zeros((8, 8), np.uint32)
    keep_largest(values, values[0], ranks, 4, np.ones(8, np.float32), counts, *kept)
    keys_of_largest(counts, *kept, 8, 4, 2)
    members_of_sets(values, values[0], values[0], 0)
