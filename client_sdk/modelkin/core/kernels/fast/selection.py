"""The loops of selection, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.loops import (
    between64,
    compile_loop,
    popcount,
    read_only,
    trailing_zeros,
)

Indices = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]


def histogram(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    counts = np.zeros(65536, np.int64)
    _histogram(read_only(bits), np.zeros(65536, np.uint32), counts)
    return counts


@compile_loop
def _histogram(bits: Any, table: Any, counts: Any) -> None:
    shift, one = np.uint32(16), np.uint32(1)
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
    _histogram_mass(read_only(bits), np.zeros(65536, np.uint64), counts, low)
    return counts, low


@compile_loop
def _histogram_mass(bits: Any, table: Any, counts: Any, low: Any) -> None:
    # One cell holds the count from bit 40 up and the sum of lower halves below it: one load and
    # one store an element. It is emptied every 2^23 elements, before either field can overflow.
    shift, half = np.uint32(16), np.uint32(0xFFFF)
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
    _histogram_within(read_only(bits.view(np.int32)), np.uint32(upper), counts)
    return counts


@compile_loop
def _histogram_within(signed: Any, upper: Any, counts: Any) -> None:
    # Floats of one upper half are an interval, also of the bits as signed integers.
    least = np.int32(upper << np.uint32(16))
    most, half = np.int32(least | np.int32(0xFFFF)), np.int32(0xFFFF)
    whole = signed.size - signed.size % 64
    for begin in range(0, whole, 64):
        mask = between64(np.uint64(signed.ctypes.data) + np.uint64(4 * begin), least, most)
        while mask != np.uint64(0):  # most stretches hold nothing of the bin
            counts[signed[begin + np.int64(trailing_zeros(mask))] & half] += 1
            mask &= mask - np.uint64(1)
    for i in range(whole, signed.size):
        if least <= signed[i] <= most:
            counts[signed[i] & half] += 1


def emit(bits: npt.NDArray[np.uint32], threshold: int, ties: int, k: int) -> Indices:
    # A few more than k: indices are written by fours, the last of which count no more.
    indices: Indices = (
        np.empty(k + 4, np.uint32) if bits.size <= 2**32 else np.empty(k + 4, np.uint64)
    )
    signed = read_only(bits.view(np.int32))
    last = bits.size if ties >= bits.size else int(_behind_ties(signed, threshold, ties))
    done = _emit(signed, threshold, 0, last, indices, 0)
    _emit(signed, threshold + 1, last, bits.size, indices, done)
    return indices[:k]


@compile_loop
def _behind_ties(signed: Any, threshold: Any, ties: Any) -> Any:
    """The position after the last selected tie; 0 if no tie is selected."""
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


@compile_loop
def _emit(signed: Any, least: Any, begin: int, end: int, indices: Any, done: int) -> Any:
    # Take the bits of 64 comparisons at once: the time goes with the indices, not with the floats.
    at, i, least = np.uint64(done), np.uint64(begin), np.int32(least)
    one, most = np.uint64(1), np.int32(2**31 - 1)
    while i + np.uint64(64) <= np.uint64(end):
        mask = between64(np.uint64(signed.ctypes.data) + np.uint64(4) * i, least, most)
        stop = at + popcount(mask)
        while at < stop:
            for j in range(4):
                indices[at + np.uint64(j)] = i + trailing_zeros(mask)
                mask &= mask - one
            at += np.uint64(4)
        at = stop
        i += np.uint64(64)
    while i < np.uint64(end):
        indices[at] = i
        at += np.uint64(signed[i] >= least)
        i += one
    return np.int64(at)


def warm() -> None:
    """Compile every loop of this module for all its types."""
    bits = np.ones(1, np.uint32)
    histogram(bits)
    histogram_mass(bits)
    histogram_within(bits, 0)
    emit(bits, 1, 1, 1)
    emit(bits, 1, 0, 1)
    _emit(read_only(bits.view(np.int32)), 1, 0, 1, np.empty(4, np.uint64), 0)
