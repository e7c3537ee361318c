"""The loops of ``reference_minhash``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.compiled import compiled, line_aligned, read_only
from modelkin.core.kernels.reference_minhash import GOLDEN, fss_key, fss_rounds

Narrow = npt.NDArray[np.uint32]
Wide = npt.NDArray[np.uint64]

EMPTY, STEP = np.uint32(2**32 - 1), np.uint32(GOLDEN)


def minhash32(indices: Narrow, a: Narrow, b: Narrow) -> Narrow:
    least = np.full(a.size, 2**32 - 1, np.uint32)
    _minhash32(read_only(indices), read_only(a), read_only(b), least)
    return least


@compiled
def _minhash32(indices: Any, a: Any, b: Any, least: Any) -> None:
    # Every step is cast back: numba makes uint64 of uint32 * uint32, neither modulo 2^32 nor fast.
    mixed = line_aligned(np.empty(2048 + 16, np.uint32))
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


def minhash64(indices: Narrow | Wide, a: Wide, b: Wide) -> Wide:
    least = np.full(a.size, 2**64 - 1, np.uint64)
    _minhash64(read_only(indices), read_only(a), read_only(b), least)
    return least


@compiled
def _minhash64(indices: Any, a: Any, b: Any, least: Any) -> None:
    mixed = line_aligned(np.empty(1024 + 8, np.uint64))
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


def fss32(indices: Narrow, num_perm: int, seed: int) -> Narrow:
    least = np.full(num_perm, EMPTY, np.uint32)
    frozen, bits, key = read_only(indices), np.uint32(num_perm.bit_length() - 1), fss_key(seed)
    seen = min(frozen.size, 256 * num_perm)
    _fss_first(frozen[:seen], key, bits, least)
    _fss_rest(frozen[seen:], seen, key, bits, least)
    if (least == EMPTY).any():
        _fss_later(frozen, key, bits, fss_rounds(num_perm), least)
    return least


@compiled
def _half(x: Any) -> Any:
    """lowbias32 but for its last step, which changes the low 16 bits alone."""
    x = np.uint32(x)
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    return np.uint32(np.uint32(x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))


@compiled
def _mix(x: Any) -> Any:
    x = _half(x)
    return np.uint32(x ^ (x >> np.uint32(16)))


@compiled
def _fss_first(indices: Any, key: Any, bits: Any, least: Any) -> None:
    """Round 0 of elements that mostly change something: hashes by blocks, then bins one by one."""
    hashes, mask = line_aligned(np.empty(1024 + 16, np.uint32)), np.uint32(least.size - 1)
    for begin in range(0, indices.size, 1024):
        block = indices[begin : begin + 1024]
        for j in range(block.size):
            hashes[j] = _mix(block[j] ^ key)
        for j in range(block.size):
            bin_, rank = hashes[j] & mask, hashes[j] >> bits
            least[bin_] = rank if rank < least[bin_] else least[bin_]


@compiled
def _fss_rest(indices: Any, seen: int, key: Any, bits: Any, least: Any) -> None:
    """Round 0 of elements that mostly change nothing: 32 hashes are made and compared at once.

    No hash above ``limit`` can lower any bin. The limit has its low 16 bits set, so that hashes
    are compared by their high ones, which are there a step before the hash is.
    """
    limit, due, mask = EMPTY, 0, np.uint32(least.size - 1)
    for begin in range(0, indices.size, 32):
        if begin >= due:
            limit = np.uint32((least.max() << bits) | np.uint32(0xFFFF))
            due = begin + (seen + begin) // 8
        block, smallest = indices[begin : begin + 32], EMPTY
        for j in range(block.size):
            half = _half(block[j] ^ key)
            smallest = half if half < smallest else smallest
        if smallest <= limit:
            for j in range(block.size):
                half = _half(block[j] ^ key)
                if half <= limit:
                    p = np.uint32(half ^ (half >> np.uint32(16)))
                    bin_, rank = p & mask, p >> bits
                    least[bin_] = rank if rank < least[bin_] else least[bin_]


@compiled
def _fss_later(indices: Any, key: Any, bits: Any, rounds: int, least: Any) -> None:
    """What an empty bin is left to: the later rounds, then a hash of its own."""
    mask, tag = np.uint32(least.size - 1), np.uint32(np.uint32(32) - bits)
    for number in range(1, rounds):
        if least.max() != EMPTY:
            return
        offset = np.uint32(np.uint32(number) * STEP)
        stamp = np.uint32(np.uint32(number) << tag)
        for i in range(indices.size):
            p = _mix(np.uint32(_mix(indices[i] ^ key) + offset))
            value = np.uint32(stamp | (p >> bits))
            least[p & mask] = value if value < least[p & mask] else least[p & mask]
    stamp = np.uint32(np.uint32(rounds) << tag)
    for bin_ in range(least.size):
        if least[bin_] == EMPTY:
            offset = np.uint32(np.uint32(rounds + bin_) * STEP)
            smallest = EMPTY
            for i in range(indices.size):
                p = _mix(np.uint32(_mix(indices[i] ^ key) + offset))
                smallest = p if p < smallest else smallest
            least[bin_] = np.uint32(stamp | (smallest >> bits))


def warm() -> None:
    """Every loop here, for every type it will meet."""
    narrow, wide = np.zeros(1, np.uint32), np.zeros(1, np.uint64)
    minhash32(narrow, narrow, narrow)
    minhash64(narrow, wide, wide)
    minhash64(wide, wide, wide)
    fss32(narrow, 2, 1)
