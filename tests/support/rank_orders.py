"""Similarities of ordered supports, which the service does not compute: what an order would add.

An ordered support is the K most important indices by falling importance. Index overlaps read the
set alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from modelkin import Support
from studies.federations import Floats

__all__ = ["Orders", "important_first", "octave_weights", "ordered_cosine", "rare_overlap"]

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


def rare_overlap(orders: Orders, num_parameters: int) -> Floats:
    """Overlap with the weight log(N / n) for an index that n of N clients have, ``(N, N)``.

    It is twice the weight of shared indices over that of both supports, as S is for equal weights.
    """
    held = np.zeros((len(orders), num_parameters))
    for row, indices in zip(held, orders, strict=True):
        row[indices] = 1
    rarity = np.log(len(orders) / np.maximum(held.sum(axis=0), 1))
    shared = (held * rarity) @ held.T
    whole = np.diag(shared)
    return np.asarray(2 * shared / np.maximum(whole[:, None] + whole[None], 1e-300))


def _spread(orders: Orders, num_parameters: int) -> Floats:
    found = np.zeros((len(orders), num_parameters))
    for row, indices in zip(found, orders, strict=True):
        row[indices] = octave_weights(indices.size)
    return found
