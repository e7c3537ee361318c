"""Classic MinHash in numpy: ``affine32`` and ``affine64``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Narrow = npt.NDArray[np.uint32]
Wide = npt.NDArray[np.uint64]

BLOCK = 1 << 16
"""Indices a step: numpy's temporaries stay in the second-level cache."""


def minhash32(indices: Narrow, a: Narrow, b: Narrow) -> Narrow:
    """The least ``a * fmix32(index) + b mod 2^32`` for each of h odd ``a`` and ``b``."""
    least = np.full(a.size, 2**32 - 1, np.uint32)
    for at in range(0, indices.size, BLOCK):
        _lower(least, _mixed32(indices[at : at + BLOCK]), a, b)
    return least


def minhash64(indices: Narrow | Wide, a: Wide, b: Wide) -> Wide:
    """The least ``a * fmix64(index) + b mod 2^64`` for each of h odd ``a`` and ``b``."""
    least = np.full(a.size, 2**64 - 1, np.uint64)
    for at in range(0, indices.size, BLOCK):
        _lower(least, _mixed64(indices[at : at + BLOCK]), a, b)
    return least


def hashes(indices: Any, a: Any, b: Any) -> Any:
    """The hash value of each index under its own permutation, or of all under one.

    Args:
        indices: shape ``(n,)``.
        a: odd factors, shape ``(n,)`` or ``(1,)``; uint32 means ``affine32``, uint64 ``affine64``.
        b: offsets of the same shape and dtype.

    Returns:
        Shape ``(n,)``, in the dtype of ``a``.
    """
    mixed = _mixed32(indices) if a.dtype == np.uint32 else _mixed64(indices)
    return a * mixed + b


def _lower(least: Any, mixed: Any, a: Any, b: Any) -> None:
    for j in range(least.size):
        least[j] = min(least[j], (a[j] * mixed + b[j]).min())


def _mixed32(x: Narrow) -> Narrow:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def _mixed64(indices: Narrow | Wide) -> Wide:
    x = indices.astype(np.uint64)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))
