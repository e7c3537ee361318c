"""Rows of bits, counted and weighted column by column, and the places of set bits, in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

_BLOCK = 1 << 16


def column_counts(rows: Words, columns: int) -> npt.NDArray[np.int32]:
    """Count the rows ``(n, w)`` in which each of the first bits is set; shape ``(columns,)``."""
    counts = np.zeros(rows.shape[1] * 64, np.int32)
    for row in rows:
        counts += np.unpackbits(row.view(np.uint8), bitorder="little")
    return counts[:columns]


def weighted_sums(rows: Words, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The sum of the weights of the set bits of each row; shape ``(n,)``.

    Args:
        rows: shape ``(n, ceil(c / 64))``; the bits after the c-th are zero.
        weights: one for each bit, shape ``(c,)``.
    """
    size = weights.size
    bits = (np.unpackbits(row.view(np.uint8), count=size, bitorder="little") for row in rows)
    return np.array([weights[held.view(np.bool_)].sum() for held in bits], np.int64)


def set_bits(words: Words, dtype: Any) -> npt.NDArray[Any]:
    """The places of the set bits, ascending, of the given dtype; bit 0 is the lowest."""
    octets, pieces = words.view(np.uint8), [np.empty(0, dtype)]
    for at in range(0, octets.size, _BLOCK):
        flags = np.unpackbits(octets[at : at + _BLOCK], bitorder="little")
        pieces.append((np.flatnonzero(flags) + at * 8).astype(dtype))
    return np.concatenate(pieces)
