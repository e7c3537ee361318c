"""Exact Shapley values of donors in the game of the K nearest neighbours.

Source: Jia, Dao, Wang, Hubis, Gurel, Li, Zhang, Spanos and Song, "Efficient task-specific data
valuation for nearest neighbor algorithms", VLDB 2019, Theorem 1, which needs of a donor's worth
only that it is one number. The caller sorts the donors by distance.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter

__all__ = ["knn_shapley"]


def knn_shapley(worth: npt.ArrayLike, neighbors: int) -> npt.NDArray[np.float64]:
    """The Shapley value of each donor.

    The worth of a coalition is the sum of the worth of its ``neighbors`` nearest members, divided
    by ``neighbors``; an empty coalition is worth 0.

    Args:
        worth: the worth of each donor to the target, the nearest donor first, shape ``(n,)``: 1 if
            its label is the target's and 0 if not, or a metric of it.
        neighbors: how many members of a coalition count, at least 1.

    Returns:
        Shape ``(n,)``, in the order of ``worth``; the sum is the worth of all donors together.

    Raises:
        InvalidParameter: ``worth`` is not a vector of finite numbers, or ``neighbors`` is below 1.
    """
    values = np.asarray(worth, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise InvalidParameter("worth must be a vector of finite numbers", field="worth")
    if neighbors < 1:
        raise InvalidParameter(f"neighbors must be at least 1, not {neighbors}", field="neighbors")
    n = values.size
    if n == 0:
        return np.zeros(0)
    places = np.arange(1, n)
    steps = np.diff(values) / neighbors * np.minimum(neighbors, places) / places
    farthest = values[-1] / neighbors * min(neighbors, n) / n
    # From the farthest donor on, each value is the next one's plus their difference.
    return np.concatenate([farthest - np.cumsum(steps[::-1])[::-1], [farthest]])
