"""Sets of indices that were drawn with repetitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["distinct"]


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values once each, ascending.

    ``np.unique`` sorts only where it counts, too. Alone it hashes, which takes a million values a
    hundred times as long.
    """
    return np.unique(values, return_counts=True)[0]
