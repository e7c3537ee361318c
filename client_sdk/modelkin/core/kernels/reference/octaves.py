"""Shared indices by their octaves, in numpy."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Indices = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
Octaves = npt.NDArray[np.uint8]

SUMS: Final = 128
"""A number above every sum of two octaves: K is below 2^63, so an octave is 62 at most."""
ABSENT: Final = SUMS
"""The octave of an index that a support lacks, in a table: sums with it begin at ``SUMS``."""

_BLOCK: Final = 1 << 16


def shared_octaves(a: Indices, a_octaves: Octaves, b: Indices, b_octaves: Octaves) -> Counts:
    """How many indices two lists share, by the sum of their two octaves.

    Args:
        a: ascending indices, at least one.
        a_octaves: the octaves of ``a``, 62 at most.
        b: ascending indices of the same dtype, at least one.
        b_octaves: the octaves of ``b``, 62 at most.

    Returns:
        Shape ``(SUMS,)``.
    """
    counts = np.zeros(SUMS, np.int64)
    for at in range(0, a.size, _BLOCK):
        block = a[at : at + _BLOCK]
        found = np.minimum(np.searchsorted(b, block), b.size - 1)
        both = b[found] == block
        sums = a_octaves[at : at + _BLOCK][both] + b_octaves[found[both]]
        counts += np.bincount(sums, minlength=SUMS)
    return counts


def probe_octaves(table: Octaves, indices: Indices, octaves: Octaves) -> Counts:
    """:func:`shared_octaves` of a list and of another one that is a table.

    Args:
        table: the octave of each index, or ``ABSENT``; longer than the largest index.
        indices: ascending indices, at least one.
        octaves: the octave of each entry of ``indices``.
    """
    counts = np.zeros(SUMS, np.int64)
    for at in range(0, indices.size, _BLOCK):
        sums = table[indices[at : at + _BLOCK]] + octaves[at : at + _BLOCK]
        counts += np.bincount(sums, minlength=2 * SUMS)[:SUMS]
    return counts
