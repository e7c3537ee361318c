"""``Nearness``: whether two models are nearer than unrelated ones are, and how surely.

One rule for every answer that calls models kin: a P against chance in each tensor where that is
known (:mod:`modelkin.core.similarity.strangers`), and else a floor that no kin are below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from modelkin.core.kinship.donors import is_unrelated
from modelkin.core.similarity.chance import kappa
from modelkin.core.similarity.strangers import is_at_chance, log10_p

__all__ = ["Nearness"]

_ERRORS: Final = 2.0
"""Standard errors by which an estimate has to be beyond the floor: the largest of many errs up."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near two models are beside unrelated ones.

    Attributes:
        unrelated: whether unrelated models may be as near.
        log10_p: the decimal logarithm of the P of so much between unrelated models; None where
            chance in each tensor is not known, or gives S = 1.
    """

    unrelated: bool
    log10_p: float | None

    @classmethod
    def of(
        cls,
        similarity: float,
        standard_error: float,
        expected: float | None,
        sizes: tuple[int, int],
        num_parameters: int,
        comparisons: int = 1,
        shared: int | None = None,
    ) -> Nearness:
        """Judge one pair.

        Args:
            similarity: S of the two.
            standard_error: that of S; 0 where it is exact.
            expected: S by chance in each tensor; None where that is not known.
            sizes: how many indices each of the two has; 0 where that is not known.
            num_parameters: M.
            comparisons: how many models were compared, of which this is one.
            shared: how many indices the two share, by which is known how many were compared: fewer
                than there are, where something is left out. None of an estimate.
        """
        if expected is None or kappa(similarity, expected) is None or not min(sizes):
            least = max(0.0, similarity - _ERRORS * standard_error)
            return cls(is_unrelated(least, None, sizes, num_parameters), None)
        compared = 1.0 if not shared or not similarity else 2.0 * shared / similarity / sum(sizes)
        a, b = (max(1.0, size * compared) for size in sizes)
        found = log10_p(similarity, expected, (a, b), standard_error)
        return cls(is_at_chance(found, comparisons), found)
