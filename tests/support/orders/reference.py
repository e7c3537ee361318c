"""Ordered similarities in plain numpy, from the whole order of the K most important indices.

What the SDK and the service compute of octaves is compared with this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from modelkin import Support

__all__ = ["Orders", "important_first", "octave_weights", "ordered_cosine"]

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Orders = Sequence[Indices]
"""The indices of each client by falling importance."""


def important_first(importances: npt.ArrayLike, supports: Iterable[Support]) -> Orders:
    """The indices of each support by falling importance, ties to the lower index.

    Args:
        importances: that the supports were selected from, ``(N, M)``.
        supports: N of them.
    """
    pairs = zip(np.asarray(importances), supports, strict=True)
    return [_by_importance(row, support.indices.astype(np.intp)) for row, support in pairs]


def _by_importance(row: npt.NDArray[np.floating], indices: Indices) -> Indices:
    return np.asarray(indices[np.argsort(-row[indices], kind="stable")])


def octave_weights(k: int) -> Floats:
    """The weight of each rank, ``(K,)``: 2^(-l/2) in octave l, the ranks from 2^l to 2^(l+1) - 1.

    Ranks count from 1. Full octaves have equal shares of the squared length of a support. The
    octave of an index takes about two bits, and no value is sent.
    """
    octaves = np.floor(np.log2(np.arange(1, k + 1)))
    return np.asarray(2.0 ** (-octaves / 2), np.float64)


def ordered_cosine(ours: Orders, theirs: Orders, num_parameters: int) -> Floats:
    """The cosine of weighted indices, of each of N supports and each of L others.

    Returns:
        ``(N, L)``, from 0 (no shared index) to 1 (the same indices in the same octaves).
    """
    a, b = (_spread(orders, num_parameters) for orders in (ours, theirs))
    lengths = np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1))
    return np.asarray(a @ b.T / np.maximum(lengths, 1e-300))


def _spread(orders: Orders, num_parameters: int) -> Floats:
    found = np.zeros((len(orders), num_parameters))
    for row, indices in zip(found, orders, strict=True):
        row[indices] = octave_weights(indices.size)
    return found
