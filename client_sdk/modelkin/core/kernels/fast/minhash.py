"""The loops of ``reference_minhash``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.loops import compile_loop, read_only, scratch

Narrow = npt.NDArray[np.uint32]
Wide = npt.NDArray[np.uint64]


def minhash32(indices: Narrow, a: Narrow, b: Narrow) -> Narrow:
    least = np.full(a.size, 2**32 - 1, np.uint32)
    mixed = scratch(2048, np.uint32)
    _minhash32(read_only(indices), read_only(a), read_only(b), mixed, least)
    return least


@compile_loop
def _minhash32(indices: Any, a: Any, b: Any, mixed: Any, least: Any) -> None:
    # Every step is cast back: numba makes uint64 of uint32 * uint32, neither modulo 2^32 nor fast.
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
    mixed = scratch(1024, np.uint64)
    _minhash64(read_only(indices), read_only(a), read_only(b), mixed, least)
    return least


@compile_loop
def _minhash64(indices: Any, a: Any, b: Any, mixed: Any, least: Any) -> None:
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


def hashes(indices: Narrow | Wide, a: Any, b: Any) -> Any:
    values = np.empty(indices.size, a.dtype)
    loop = _hashes32 if a.dtype == np.uint32 else _hashes64
    loop(read_only(indices), read_only(a), read_only(b), values)
    return values


@compile_loop
def _hashes32(indices: Any, a: Any, b: Any, values: Any) -> None:
    for i in range(indices.size):
        j = i % a.size
        x = np.uint32(indices[i])
        x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        x = np.uint32(np.uint32(x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        values[i] = np.uint32(np.uint32(a[j] * np.uint32(x ^ (x >> np.uint32(16)))) + b[j])


@compile_loop
def _hashes64(indices: Any, a: Any, b: Any, values: Any) -> None:
    for i in range(indices.size):
        j = i % a.size
        x = np.uint64(indices[i])
        x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        values[i] = a[j] * (x ^ (x >> np.uint64(33))) + b[j]


def warm() -> None:
    """Compile every loop of this module for all its types."""
    narrow, wide = np.zeros(1, np.uint32), np.zeros(1, np.uint64)
    minhash32(narrow, narrow, narrow)
    hashes(narrow, narrow, narrow)
    hashes(narrow, wide, wide)
    hashes(wide, wide, wide)
    minhash64(narrow, wide, wide)
    minhash64(wide, wide, wide)
