"""The loop of ``reference_blinding``, compiled: round by round over blocks that stay in the cache.

One index would wait for ten look-ups in a row. A block of them makes each look-up side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels import reference_blinding
from modelkin.core.kernels.compiled import compiled, read_only, scratch

Indices = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
Tables = npt.NDArray[np.uint16]

_BLOCK = 512


def permute(
    indices: Indices, size: int, radices: Sequence[int], tables: Tables, inverse: bool = False
) -> Indices:
    if len(radices) != 2 or indices.dtype != np.uint32:
        return reference_blinding.permute(indices, size, radices, tables, inverse)
    rows, digits = read_only(tables.reshape(-1)), scratch(2 * _BLOCK, np.uint32)

    def walked(values: Any) -> Any:
        moved = np.empty_like(values)
        _walk(read_only(values), *radices, rows, len(tables), int(inverse), digits, moved)
        return moved

    out = walked(indices)
    outside = np.flatnonzero(out >= size)  # one in sqrt(M), if any
    while outside.size:
        out[outside] = walked(out[outside])
        outside = outside[out[outside] >= size]
    permuted: Indices = out
    return permuted


@compiled
def _walk(
    indices: Any,
    highs: int,
    lows: int,
    tables: Any,
    rounds: int,
    inverse: int,
    digits: Any,
    out: Any,
) -> None:
    """Permute indices within the product of their radices, which is 2^32 at most."""
    width, block = tables.size // rounds, digits.size // 2
    high, low = digits[:block], digits[block:]
    for at in range(0, indices.size, block):
        count = min(block, indices.size - at)
        _split(indices[at : at + count], lows, high, low)
        for step in range(0, rounds, 2):
            if inverse:
                row = tables[(rounds - step - 2) * width :]
                _subtract(low, high, row[width:], lows, count)
                _subtract(high, low, row, highs, count)
            else:
                row = tables[step * width :]
                _add(high, low, row, highs, count)
                _add(low, high, row[width:], lows, count)
        for i in range(count):
            out[at + i] = np.uint32(high[i] * np.uint64(lows) + low[i])


@compiled
def _split(indices: Any, radix: int, high: Any, low: Any) -> None:
    """By a reciprocal, whose quotient is one off at most, and is then corrected."""
    inverse = 1.0 / np.float64(radix)
    for i in range(indices.size):
        quotient = np.int64(np.float64(indices[i]) * inverse)
        rest = np.int64(indices[i]) - quotient * radix
        off = np.int64(rest >= radix) - np.int64(rest < 0)
        high[i] = np.uint32(quotient + off)
        low[i] = np.uint32(rest - off * radix)


@compiled
def _add(digit: Any, other: Any, table: Any, radix: int, count: int) -> None:
    modulus = np.uint32(radix)
    for i in range(count):
        value = np.uint32(digit[i] + table[np.uint64(other[i])])
        digit[i] = min(value, np.uint32(value - modulus))


@compiled
def _subtract(digit: Any, other: Any, table: Any, radix: int, count: int) -> None:
    modulus = np.uint32(radix)
    for i in range(count):
        value = np.uint32(digit[i] - table[np.uint64(other[i])])
        digit[i] = min(value, np.uint32(value + modulus))


def warm() -> None:
    """Every loop here."""
    permute(np.zeros(1, np.uint32), 1, (1, 1), np.zeros((2, 1), np.uint16))
