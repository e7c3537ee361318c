"""Bit planes: the low bits of many signatures, laid out so that a scan counts matches by words.

Two values that differ agree in all of t low bits with probability 2^-t, so a scan over 4 bits of
every model chooses candidates at an eighth of the memory that full values take. Plane p of a row
holds bit p of all its values; values match where no plane differs, ``h - popcount(OR of XORs)`` of
them. This module never turns a count into a similarity: truncated values choose candidates only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels
from modelkin.core.schemes import ValueArray

__all__ = ["plane_matches", "plane_matches_at", "planes"]

Planes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int16]
Rows = npt.NDArray[np.int64]


def planes(values: ValueArray, bits: int, first: int = 0) -> Planes:
    """The planes of ``bits`` bits of many signatures.

    Args:
        values: shape ``(n, h)``.
        bits: how many planes, at least 1.
        first: the lowest bit; ``first + bits`` is at most the width of a value.

    Returns:
        Shape ``(n, bits, ceil(h / 64))``: 128 bytes a row for 4 bits of 256 values. The bits behind
        the last value are zero and match nothing, since matches are counted from h down.
    """
    made: Planes = kernels().planes(values, bits, first)
    return made


def plane_matches(rows: Planes, query: Planes, num_perm: int) -> Counts:
    """How many values of each row equal the query's, as far as the planes show.

    Args:
        rows: shape ``(n, bits, w)``.
        query: the planes of one signature, shape ``(bits, w)``.
        num_perm: h, of which ``w = ceil(h / 64)``.

    Returns:
        Shape ``(n,)``, 0 to h each.
    """
    matches: Counts = kernels().plane_matches(rows, query, num_perm)
    return matches


def plane_matches_at(at: Rows, num_perm: int, *parts: tuple[Planes, Planes]) -> Counts:
    """How many values of some rows equal the query's, over the planes of all parts together.

    Planes kept apart, 4 low bits here and 4 high ones there, so give the matches of 8 bits.

    Args:
        at: which rows, shape ``(m,)``.
        num_perm: h.
        parts: the rows' planes ``(n, bits, w)`` and the query's ``(bits, w)``, of each part.

    Returns:
        Shape ``(m,)``, in the order of ``at``.
    """
    mismatches = np.zeros((at.size, -(-num_perm // 64)), np.uint64)
    for rows, query in parts:
        kernels().add_mismatches(rows, query, at, mismatches)
    counts: Any = num_perm - np.bitwise_count(mismatches).sum(axis=1, dtype=np.int16)
    return counts  # type: ignore[no-any-return]
