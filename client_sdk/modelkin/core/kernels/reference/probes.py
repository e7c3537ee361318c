"""Probing in numpy: the members of a support among the indices of least hash value.

A permutation ``a * mix(x) + b`` is a bijection, so its minimum over a support belongs to the first
member among all indices in the order of their hash values. A *probe table* holds the first indices
of that order, a column for each permutation; it depends on M, h and seed alone. A signature is then
about ``h * M / K`` questions whether an index is a member, however large K is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.reference.minhash import BLOCK, hashes

Narrow = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]

QUESTIONS = 4096
"""How many indices are asked for at a time."""

INVERSE_FACTORS = (pow(0xC2B2AE35, -1, 2**32), pow(0x85EBCA6B, -1, 2**32))
"""The inverses of the factors of fmix32, last first."""


def first_members(table: Narrow, contains: Callable[[Narrow], npt.NDArray[np.bool_]]) -> Rows:
    """The row of the first member in each column of a probe table.

    Args:
        table: indices, shape ``(depth, h)``.
        contains: says of indices, shape ``(n,)``, whether each is a member.

    Returns:
        Shape ``(h,)``; ``depth`` for a column without a member.
    """
    depth, h = table.shape
    found, columns, row = np.full(h, depth, np.int64), np.arange(h), 0
    while columns.size and row < depth:
        block = table[row : row + max(1, QUESTIONS // columns.size), columns]
        inside = contains(block.ravel()).reshape(block.shape)
        hit = inside.any(axis=0)
        found[columns[hit]] = row + inside[:, hit].argmax(axis=0)
        columns, row = columns[~hit], row + block.shape[0]
    return found


def probe_list(table: Narrow, indices: Narrow) -> Rows:
    """:func:`first_members` of ascending indices."""

    def contains(wanted: Narrow) -> npt.NDArray[np.bool_]:
        places = np.minimum(np.searchsorted(indices, wanted), indices.size - 1)
        same: npt.NDArray[np.bool_] = indices[places] == wanted
        return same

    return first_members(table, contains)


def probe_bitmap(table: Narrow, words: Wide) -> Rows:
    """:func:`first_members` of a bitmap of M bits."""

    def contains(wanted: Narrow) -> npt.NDArray[np.bool_]:
        wide = wanted.astype(np.uint64)
        set_: Wide = words[wide >> np.uint64(6)] >> (wide & np.uint64(63)) & np.uint64(1)
        return set_.astype(np.bool_)

    return first_members(table, contains)


def least_preimages(a: Narrow, b: Narrow, num_parameters: int, depth: int) -> Narrow:
    """The first indices below M of each permutation of ``affine32``, from the least hash value up.

    They are found by inverting the permutation: about ``depth * 2^32 / M`` values of each.

    Args:
        a: odd factors, shape ``(h,)``.
        b: offsets, likewise.
        num_parameters: M, 1 to 2^32.
        depth: 1 to M.

    Returns:
        Shape ``(depth, h)``.
    """
    table, last = np.empty((depth, a.size), np.uint32), np.uint32(num_parameters - 1)
    for j in range(a.size):
        inverse, done, begin = np.uint32(pow(int(a[j]), -1, 2**32)), 0, 0
        while done < depth:
            values = np.arange(begin, begin + BLOCK, dtype=np.uint64).astype(np.uint32)
            found = _unmix(inverse * (values - b[j]))
            found = found[found <= last][: depth - done]
            table[done : done + found.size, j] = found
            done, begin = done + found.size, begin + BLOCK
    return table


def least_hash_indices(a: Any, b: Any, num_parameters: int, limit: int, most: int) -> Any:
    """The indices below M whose hash value is at most ``limit``, for each permutation.

    They are found by hashing all indices.

    Args:
        a: odd factors of either scheme, shape ``(h,)``; their dtype is that of the values.
        b: offsets, likewise.
        num_parameters: M, 1 to 2^32.
        limit: below 2^32 or 2^64.
        most: how many indices to keep.

    Returns:
        The indices, in ascending order, shape ``(h, most)``, and how many there are, shape
        ``(h,)``, of which the first ``most`` are kept.
    """
    kept = np.zeros((a.size, most), np.uint32)
    counts = np.zeros(a.size, np.int64)
    for begin in range(0, num_parameters, BLOCK):
        block = np.arange(begin, min(begin + BLOCK, num_parameters), dtype=np.uint64).astype(
            np.uint32
        )
        for j in range(a.size):
            found = block[hashes(block, a[j : j + 1], b[j : j + 1]) <= a.dtype.type(limit)]
            room = kept[j, counts[j] : counts[j] + found.size]
            room[:] = found[: room.size]
            counts[j] += found.size
    return kept, counts


def _unmix(x: Narrow) -> Narrow:
    """The inverse of fmix32."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(INVERSE_FACTORS[0])
    x = (x ^ (x >> np.uint32(13)) ^ (x >> np.uint32(26))) * np.uint32(INVERSE_FACTORS[1])
    return x ^ (x >> np.uint32(16))
