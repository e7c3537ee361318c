"""Signatures in numpy: classic MinHash (affine32, affine64) and fast similarity sketching (fss32).

``fss32``, in full. Let h = 2^B, ``mix`` the bijective 32-bit mix lowbias32 and ``key =
mix(seed + G mod 2^32)`` with G = 0x9E3779B9. Element i has in round 0 the hash ``p_0 = mix(i ^
key)`` and in round r the hash ``p_r = mix(p_0 + r * G mod 2^32)``. The low B bits of a hash name a
bin, its high 32 - B bits are the rank, and the value of an element in its bin is ``r << (32 - B) |
rank``. There are R = min(64, h - 1) rounds, and each bin keeps the least value of all of them. A
bin b that no element reached in R rounds has the least ``R << (32 - B) | p_(R + b) >> B`` of all
elements, classic MinHash with a hash of its own.

A later round only holds larger values, so a round matters to bins that are still empty alone, and
the work ends once none is. Every value is a minimum over elements, so the order of the indices
does not matter and the minima of disjoint shards are the whole's (Dahlgaard, Knudsen and Thorup,
Fast Similarity Sketching, FOCS 2017; with 64 rounds of theirs and another last resort).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Narrow = npt.NDArray[np.uint32]
Wide = npt.NDArray[np.uint64]

BLOCK = 1 << 16
"""Indices a step: numpy's temporaries stay in the second-level cache."""

GOLDEN = 0x9E3779B9
"""2^32 over the golden ratio: its multiples spread small numbers."""

EMPTY = 2**32 - 1
"""The value of an empty bin."""


def minhash32(indices: Narrow, a: Narrow, b: Narrow) -> Narrow:
    """The least ``a * fmix32(index) + b mod 2^32`` for each of h odd ``a`` and ``b``."""
    least = np.full(a.size, 2**32 - 1, np.uint32)
    for at in range(0, indices.size, BLOCK):
        x = indices[at : at + BLOCK]
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        _lower(least, x ^ (x >> np.uint32(16)), a, b)
    return least


def minhash64(indices: Narrow | Wide, a: Wide, b: Wide) -> Wide:
    """The least ``a * fmix64(index) + b mod 2^64`` for each of h odd ``a`` and ``b``."""
    least = np.full(a.size, 2**64 - 1, np.uint64)
    for at in range(0, indices.size, BLOCK):
        x = indices[at : at + BLOCK].astype(np.uint64)
        x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        _lower(least, x ^ (x >> np.uint64(33)), a, b)
    return least


def _lower(least: Any, mixed: Any, a: Any, b: Any) -> None:
    for j in range(least.size):
        least[j] = min(least[j], (a[j] * mixed + b[j]).min())


def fss32(indices: Narrow, num_perm: int, seed: int) -> Narrow:
    """The h values of fast similarity sketching, as the module describes them.

    Args:
        indices: distinct, shape ``(k,)``, k at least 1.
        num_perm: h, a power of two from 2 to 2^16.
        seed: 0 to 2^32 - 1.
    """
    bits, rounds = np.uint32(num_perm.bit_length() - 1), fss_rounds(num_perm)
    tag = np.uint32(32) - bits
    least = np.full(num_perm, EMPTY, np.uint32)
    for number in range(rounds):
        for p in _hashes(indices, seed, number):
            able = p[p >> bits < least.max()] if number == 0 else p
            values = np.uint32(number) << tag | able >> bits
            np.minimum.at(least, able & np.uint32(num_perm - 1), values)
        if not (least == EMPTY).any():
            return least
    for bin_ in np.flatnonzero(least == EMPTY):
        rank = min(int(p.min() >> bits) for p in _hashes(indices, seed, rounds + int(bin_)))
        least[bin_] = np.uint32(rounds) << tag | np.uint32(rank)
    return least


def fss_rounds(num_perm: int) -> int:
    """R: more rounds find little, and B bits of a value hold no more than h - 1."""
    return min(64, num_perm - 1)


def fss_key(seed: int) -> np.uint32:
    """The key that makes the hashes of one seed differ from another's."""
    return np.uint32(_mix(np.array([(seed + GOLDEN) % 2**32], np.uint32))[0])


def _hashes(indices: Narrow, seed: int, number: int) -> Iterator[Narrow]:
    """The hashes of one round, block by block."""
    key, offset = fss_key(seed), np.uint32(number * GOLDEN % 2**32)
    for at in range(0, indices.size, BLOCK):
        p = _mix(indices[at : at + BLOCK] ^ key)
        yield p if number == 0 else _mix(p + offset)


def _mix(x: Narrow) -> Narrow:
    """lowbias32, Chris Wellons' bijective mix of least known bias with two multiplications."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))
