"""The rows of an index with the most matching values: the candidates of a query.

The byte scan of an index makes the counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels

__all__ = ["top_k"]


def top_k(
    counts: npt.NDArray[np.int16] | npt.NDArray[np.int32], maximum: int, k: int
) -> npt.NDArray[np.int64]:
    """The rows of the ``k`` largest counts, in one pass for a histogram and one to collect.

    Of rows tied for the last place the first ones win: there are never more than ``k``, and the
    same counts always give the same rows.

    Args:
        counts: shape ``(n,)``; a negative count excludes its row.
        maximum: the largest possible count, h.
        k: how many rows, at least 0.

    Returns:
        Ascending rows, ``k`` of them or all that are not excluded.
    """
    rows: npt.NDArray[np.int64] = kernels().best(counts, maximum, k)
    return rows
