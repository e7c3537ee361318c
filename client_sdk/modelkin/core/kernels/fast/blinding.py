"""The loop of ``reference_blinding``, compiled: round by round over blocks that stay in the cache.

One index would wait for ten look-ups in a row. A block of them makes each look-up side by side.
Look-ups have a loop of their own: in one with the additions the compiler would build the vectors
for these from single numbers, which takes twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.loops import compile_loop, read_only, scratch
from modelkin.core.kernels.reference import blinding as reference_blinding

Indices = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
Tables = npt.NDArray[np.uint16]

_BLOCK = 512


def permute(
    indices: Indices, size: int, radices: Sequence[int], tables: Tables, inverse: bool = False
) -> Indices:
    if len(radices) != 2 or indices.dtype != np.uint32:
        return reference_blinding.permute(indices, size, radices, tables, inverse)
    rows, block = read_only(tables.reshape(-1)), scratch(3 * _BLOCK, np.uint32)

    def walk(values: Any, moved: Any) -> bool:
        """Move all values; return whether any has left ``[0, M)``."""
        return bool(_walk(values, size, *radices, rows, len(tables), int(inverse), block, moved))

    out = np.empty_like(indices)
    if walk(read_only(indices), out):
        outside = np.flatnonzero(out >= size)  # one in sqrt(M) at most, unless M is tiny
        while outside.size:
            again = out[outside]
            walk(again, again)
            out[outside] = again
            outside = outside[again >= size]
    permuted: Indices = out
    return permuted


@compile_loop
def _walk(
    indices: Any,
    size: int,
    highs: int,
    lows: int,
    tables: Any,
    rounds: int,
    inverse: int,
    scratched: Any,
    out: Any,
) -> Any:
    """Permute indices within the product of their radices, which is 2^32 at most.

    Returns:
        How many are ``size`` or more, which cycle walking has to move again.
    """
    width, block = tables.size // rounds, scratched.size // 3
    high, low, steps = scratched[:block], scratched[block : 2 * block], scratched[2 * block :]
    outside = 0
    for at in range(0, indices.size, block):
        count = min(block, indices.size - at)
        _split(indices[at : at + count], lows, high, low)
        for step in range(rounds):
            turn = rounds - 1 - step if inverse else step
            digit, other, radix = (low, high, lows) if turn % 2 else (high, low, highs)
            _look_up(tables[turn * width :], other, steps, count)
            if inverse:
                _subtract(digit, steps, radix, count)
            else:
                _add(digit, steps, radix, count)
        outside += _join(high, low, lows, size, out[at : at + count])
    return outside


@compile_loop
def _split(indices: Any, radix: int, high: Any, low: Any) -> None:
    """Divide by a reciprocal of 32 bits, and correct its quotient, at most one too small."""
    divisor, reciprocal = np.uint32(radix), np.uint64((2**32 - 1) // radix)
    for i in range(indices.size):
        quotient = np.uint32((np.uint64(indices[i]) * reciprocal) >> np.uint64(32))
        rest = np.uint32(indices[i] - np.uint32(quotient * divisor))
        high[i] = np.uint32(quotient + np.uint32(rest >= divisor))
        low[i] = min(rest, np.uint32(rest - divisor))


@compile_loop
def _look_up(table: Any, digit: Any, steps: Any, count: int) -> None:
    for i in range(count):
        steps[i] = table[np.uint64(digit[i])]


@compile_loop
def _add(digit: Any, steps: Any, radix: int, count: int) -> None:
    modulus = np.uint32(radix)
    for i in range(count):
        value = np.uint32(digit[i] + steps[i])
        digit[i] = min(value, np.uint32(value - modulus))


@compile_loop
def _subtract(digit: Any, steps: Any, radix: int, count: int) -> None:
    modulus = np.uint32(radix)
    for i in range(count):
        value = np.uint32(digit[i] - steps[i])
        digit[i] = min(value, np.uint32(value + modulus))


@compile_loop
def _join(high: Any, low: Any, radix: int, size: int, out: Any) -> Any:
    """Join the digits to indices; return how many of them are ``size`` or more."""
    factor, last, outside = np.uint32(radix), np.uint32(size - 1), np.uint32(0)
    for i in range(out.size):
        index = np.uint32(np.uint32(high[i] * factor) + low[i])
        out[i] = index
        outside = np.uint32(outside + np.uint32(index > last))
    return outside


def warm() -> None:
    """Compile every loop of this module."""
    permute(np.zeros(1, np.uint32), 1, (1, 1), np.zeros((2, 1), np.uint16))
