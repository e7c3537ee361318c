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
    out = np.empty_like(indices)
    rows = read_only(tables.reshape(-1))
    high, low = scratch(_BLOCK, np.uint32), scratch(_BLOCK, np.uint32)
    loop = _restore if inverse else _permute
    loop(read_only(indices), size, *radices, rows, len(tables), high, low, out)
    return out


@compiled
def _permute(
    indices: Any,
    size: int,
    highs: int,
    lows: int,
    tables: Any,
    rounds: int,
    high: Any,
    low: Any,
    out: Any,
) -> None:
    width = tables.size // rounds
    for at in range(0, indices.size, high.size):
        count = min(high.size, indices.size - at)
        _split(indices[at : at + count], lows, high, low)
        for turn in range(0, rounds, 2):
            _add(high, low, tables[turn * width :], highs, count)
            _add(low, high, tables[(turn + 1) * width :], lows, count)
        outside = _join(high, low, lows, size, out[at : at + count])
        for i in range(at, at + count if outside else at):
            value = np.int64(out[i])
            while value >= size:
                a, b = value // lows, value % lows
                for turn in range(0, rounds, 2):
                    a = (a + np.int64(tables[turn * width + b])) % highs
                    b = (b + np.int64(tables[(turn + 1) * width + a])) % lows
                value = a * lows + b
            out[i] = np.uint32(value)


@compiled
def _restore(
    indices: Any,
    size: int,
    highs: int,
    lows: int,
    tables: Any,
    rounds: int,
    high: Any,
    low: Any,
    out: Any,
) -> None:
    width = tables.size // rounds
    for at in range(0, indices.size, high.size):
        count = min(high.size, indices.size - at)
        _split(indices[at : at + count], lows, high, low)
        for turn in range(rounds - 2, -1, -2):
            _subtract(low, high, tables[(turn + 1) * width :], lows, count)
            _subtract(high, low, tables[turn * width :], highs, count)
        outside = _join(high, low, lows, size, out[at : at + count])
        for i in range(at, at + count if outside else at):
            value = np.int64(out[i])
            while value >= size:
                a, b = value // lows, value % lows
                for turn in range(rounds - 2, -1, -2):
                    b = (b + lows - np.int64(tables[(turn + 1) * width + a])) % lows
                    a = (a + highs - np.int64(tables[turn * width + b])) % highs
                value = a * lows + b
            out[i] = np.uint32(value)


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


@compiled
def _join(high: Any, low: Any, radix: int, size: int, out: Any) -> Any:
    """Join digits to indices; return whether one is M or more. What exceeds 32 bits says so."""
    outside = np.uint64(0)
    for i in range(out.size):
        value = np.uint64(high[i]) * np.uint64(radix) + np.uint64(low[i])
        outside |= np.uint64(value >= np.uint64(size))
        out[i] = np.uint32(value)
    return outside


def warm() -> None:
    """Every loop here."""
    indices, tables = np.zeros(1, np.uint32), np.zeros((2, 1), np.uint16)
    permute(indices, 1, (1, 1), tables)
    permute(indices, 1, (1, 1), tables, inverse=True)
