"""Overlaps by rarity, which the service does not compute: shared indices that few clients have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from studies.federations import Floats

__all__ = ["rare_overlap"]


def rare_overlap(supports: Sequence[npt.NDArray[np.integer[Any]]], num_parameters: int) -> Floats:
    """Overlap with the weight log(N / n) for an index that n of N clients have, ``(N, N)``.

    It is twice the weight of shared indices over that of both supports, as S is for equal weights.

    Args:
        supports: the indices of each client.
        num_parameters: M.
    """
    held = np.zeros((len(supports), num_parameters))
    for row, indices in zip(held, supports, strict=True):
        row[indices] = 1
    rarity = np.log(len(supports) / np.maximum(held.sum(axis=0), 1))
    shared = (held * rarity) @ held.T
    whole = np.diag(shared)
    return np.asarray(2 * shared / np.maximum(whole[:, None] + whole[None], 1e-300))
