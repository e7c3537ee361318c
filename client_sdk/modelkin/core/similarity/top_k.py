"""Which rows of an index a query goes on with: the best of their counts of matching values.

It never makes the counts: the byte scan of an index does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels

__all__ = ["best"]


def best(
    counts: npt.NDArray[np.int16] | npt.NDArray[np.int32], most: int, count: int
) -> npt.NDArray[np.int64]:
    """The rows of the ``count`` largest counts, in one pass for a histogram and one to collect.

    Where the last place is tied the first rows take it: a budget of candidates is kept whatever
    the counts are, and the same counts always give the same rows.

    Args:
        counts: shape ``(n,)``; a negative count says that its row is not eligible.
        most: the largest count that there can be, h.
        count: how many rows, at least 0.

    Returns:
        Ascending rows, ``count`` of them or all that are eligible.
    """
    rows: npt.NDArray[np.int64] = kernels().best(counts, most, count)
    return rows
