"""The loops of ``reference_octaves``, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from modelkin.core.kernels.loops import compile_loop, read_only
from modelkin.core.kernels.reference.octaves import SUMS, Counts, Indices, Octaves


def shared_octaves(a: Indices, a_octaves: Octaves, b: Indices, b_octaves: Octaves) -> Counts:
    counts = np.zeros(2 * SUMS, np.int64)
    _shared_octaves(read_only(a), read_only(a_octaves), read_only(b), read_only(b_octaves), counts)
    return counts[:SUMS]


@compile_loop
def _shared_octaves(a: Any, a_octaves: Any, b: Any, b_octaves: Any, counts: Any) -> None:
    i, j, absent = np.uint64(0), np.uint64(0), np.uint64(SUMS)
    while i < np.uint64(a.size) and j < np.uint64(b.size):
        x, y = a[i], b[j]
        # No branch on what no one can foresee: sums of indices that differ are counted apart.
        apart = np.uint64(x != y) * absent
        counts[np.uint64(a_octaves[i]) + np.uint64(b_octaves[j]) + apart] += 1
        i += np.uint64(x <= y)
        j += np.uint64(y <= x)


def probe_octaves(table: Octaves, indices: Indices, octaves: Octaves) -> Counts:
    counts = np.zeros(2 * SUMS, np.int64)
    _probe_octaves(read_only(table), read_only(indices), read_only(octaves), counts)
    return counts[:SUMS]


@compile_loop
def _probe_octaves(table: Any, indices: Any, octaves: Any, counts: Any) -> None:
    for i in range(indices.size):
        counts[np.uint64(table[indices[i]]) + np.uint64(octaves[i])] += 1


def warm() -> None:
    """Compile the loops for both widths of indices."""
    octaves = np.zeros(1, np.uint8)
    small: list[Indices] = [np.zeros(1, np.uint32), np.zeros(1, np.uint64)]
    for indices in small:
        shared_octaves(indices, octaves, indices, octaves)
        probe_octaves(octaves, indices, octaves)
