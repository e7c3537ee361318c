"""Stability: how much of a support remains when the importance is estimated again.

``stability`` is Eq. 1 of the paper, for any supports; ``decision`` uses it to choose K.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import fsum

from modelkin.core.similarity.overlap import similarity
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter

__all__ = ["stability"]


def stability(supports: Iterable[Support]) -> float:
    """The mean pairwise overlap of supports from r resamples of one importance (Eq. 1).

    Args:
        supports: r of them, at least 2, of the same number of parameters, and of one size if
            enough entries are positive; for unequal sizes the overlap is Sorensen and Dice's, as
            everywhere.

    Returns:
        0 to 1; 1 if all are the same.

    Raises:
        InvalidParameter: fewer than two supports.
        SpaceMismatch: they are of different numbers of parameters, or of different origins.

    Source: section 3.2, Eq. 1 of the Index-Overlap Similarity paper.
    """
    pairs = [similarity(a, b) for a, b in combinations(supports, 2)]
    if not pairs:
        raise InvalidParameter("stability needs two supports or more", field="supports")
    return fsum(pairs) / len(pairs)
