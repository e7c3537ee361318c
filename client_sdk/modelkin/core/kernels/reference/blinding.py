"""A generalised Feistel network over ``[0, M)`` whose round functions are tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
Tables = npt.NDArray[np.uint16]

_BLOCK = 1 << 14


def permute(
    indices: Indices, size: int, radices: Sequence[int], tables: Tables, inverse: bool = False
) -> Indices:
    """The permuted indices, in the order of the indices.

    An index is two or more digits, the highest first. In each round one digit is added to, modulo
    its radix, what the round's table holds for the next digit. What leaves ``[0, M)`` is permuted
    again until it is back, which is called cycle walking.

    Args:
        indices: below M, shape ``(K,)``.
        size: M.
        radices: the radices of the digits, each 2^16 at most; their product is M or a little more.
        tables: one row a round, shape ``(rounds, the largest radix)``; round i changes digit
            ``i mod len(radices)``, and the numbers of its row are below that digit's radix.
        inverse: whether to undo it.
    """
    out = indices.astype(np.uint64)
    for at in range(0, out.size, _BLOCK):
        values = out[at : at + _BLOCK]
        outside = np.ones(values.size, bool)
        while outside.any():
            values[outside] = _walk(values[outside], radices, tables, inverse)
            outside = values >= size
    permuted: Any = out.astype(indices.dtype)
    return permuted  # type: ignore[no-any-return]


def _walk(values: Any, radices: Sequence[int], tables: Tables, inverse: bool) -> Any:
    digits = []
    for radix in reversed(radices):
        digits.append(values % np.uint64(radix))
        values = values // np.uint64(radix)
    digits.reverse()
    rounds = range(len(tables))
    for turn in reversed(rounds) if inverse else rounds:
        at = turn % len(radices)
        end = np.uint64(radices[at])
        step = tables[turn][digits[(at + 1) % len(radices)]]
        digits[at] = (digits[at] + (end - step if inverse else step)) % end
    walked = digits[0]
    for digit, radix in zip(digits[1:], radices[1:], strict=True):
        walked = walked * np.uint64(radix) + digit
    return walked
