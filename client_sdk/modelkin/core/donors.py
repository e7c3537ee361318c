"""Donor weights: how much each of several models counts in what a target takes (section 5).

It weighs donors that somebody else found and ranked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter

__all__ = ["weights"]


def weights(similarities: Sequence[float] | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Weights proportional to similarity, ``w_j = S_j / sum S`` (section 5).

    Args:
        similarities: S of each donor to the target, shape ``(n,)``, each 0 to 1.

    Returns:
        Shape ``(n,)``, summing to 1. Donors that all share nothing with the target weigh the same;
        no donors have no weights.

    Raises:
        InvalidParameter: a similarity is not between 0 and 1, or they form no vector.
    """
    values = np.asarray(similarities, dtype=np.float64)
    if values.ndim != 1:
        raise InvalidParameter(f"similarities must be a vector, not of shape {values.shape}")
    wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if wrong.size:
        at = int(wrong[0])
        raise InvalidParameter(f"similarities[{at}] = {values[at]} is not between 0 and 1")
    total = float(values.sum())
    if total == 0.0:
        return np.full(values.size, 1.0 / max(1, values.size))
    return values / total
