"""Formulas between intersection sizes, similarity S, Jaccard J and its standard error."""

from __future__ import annotations

import math

__all__ = ["jaccard_of", "similarity_from_jaccard", "similarity_of", "standard_error"]


def similarity_of(shared: int, size_a: int, size_b: int) -> float:
    """``S = 2 * shared / (size_a + size_b)``; the sizes are not both 0."""
    return 2 * shared / (size_a + size_b)


def jaccard_of(similarity: float) -> float:
    """``J = S / (2 - S)``."""
    return similarity / (2.0 - similarity)


def similarity_from_jaccard(jaccard: float) -> float:
    """``S = 2J / (1 + J)``."""
    return 2.0 * jaccard / (1.0 + jaccard)


def standard_error(jaccard: float, num_perm: int) -> float:
    """The standard error ``2 / (1 + J)^2 * sqrt(J (1 - J) / h)`` of an S from h minima."""
    return 2.0 / (1.0 + jaccard) ** 2 * math.sqrt(jaccard * (1.0 - jaccard) / num_perm)
