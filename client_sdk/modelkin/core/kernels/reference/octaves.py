"""Shared indices by their octaves, in numpy."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Indices = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
Octaves = npt.NDArray[np.uint8]

SUMS: Final = 128
"""More than two octaves sum to: K is below 2^63, so that an octave is 62 at most."""
ABSENT: Final = SUMS
"""Stands in a table for an index without an octave: sums with it are those from ``SUMS`` on."""

_BLOCK: Final = 1 << 16


def shared_octaves(a: Indices, a_octaves: Octaves, b: Indices, b_octaves: Octaves) -> Counts:
    """How many indices two lists share, by the sum of their two octaves.

    Args:
        a: ascending, at least one.
        a_octaves: of them, 62 at most.
        b: likewise, of the same dtype.
        b_octaves: of them.

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
        table: of each index its octave, or ``ABSENT``; longer than the largest index.
        indices: ascending, at least one.
        octaves: of them.
    """
    counts = np.zeros(SUMS, np.int64)
    for at in range(0, indices.size, _BLOCK):
        sums = table[indices[at : at + _BLOCK]] + octaves[at : at + _BLOCK]
        counts += np.bincount(sums, minlength=2 * SUMS)[:SUMS]
    return counts
