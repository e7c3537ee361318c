"""How similar the models of a space are to one model, taken together.

Against it a single similarity stands out, or does not. It is read off the bytes of signatures that
a scan counts anyway, and the noise of signatures is taken out of its spread. It ranks nobody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Background", "similarities_of_matches"]

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_CHANCE = 1 / 256
"""How often the lowest bytes of two different minhashes are the same."""
_LEAST = 0.25
"""Of the variance that is seen, at least so much is taken for the models': noise is only known on
average, and a spread near 0 would make anything stand out.
"""
_ROUNDING = 1e-12
"""A variance that comes of rounding alone: all similarities are the same."""
_TO_DEVIATION = 1.4826
"""The standard deviation of normal values, in units of their median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Background:
    """The centre and the spread of the similarities of one model to others.

    Attributes:
        mean: S in the middle: the mean, or the median of a robust one.
        deviation: the standard deviation of S over models; 0 where it cannot be told.
        models: how many these are.
    """

    mean: float
    deviation: float
    models: int

    @classmethod
    def of(cls, similarities: Floats, errors: Floats, models: Counts) -> Background:
        """Mean and standard deviation.

        Args:
            similarities: estimates of S, shape ``(n,)``.
            errors: their standard errors, likewise.
            models: how many models have each, likewise; possibly none.
        """
        total = int(models.sum())
        if total == 0:
            return cls(0.0, 0.0, 0)
        mean = float(similarities @ models) / total
        variance = float((similarities - mean) ** 2 @ models) / total
        return cls(mean, _without_noise(variance, errors, models), total)

    @classmethod
    def robust(cls, similarities: Floats, errors: Floats, models: Counts) -> Background:
        """Median, and the deviation that the median distance from it tells.

        Kin, as long as they are fewer than half of all, do not move it. Arguments are those of
        :meth:`of`.
        """
        total = int(models.sum())
        if total == 0:
            return cls(0.0, 0.0, 0)
        middle = _median(similarities, models)
        spread = _TO_DEVIATION * _median(np.abs(similarities - middle), models)
        return cls(middle, _without_noise(spread**2, errors, models), total)

    def z_score(self, similarity: float) -> float | None:
        """How many standard deviations S is above the mean; None where there is no spread."""
        if self.deviation == 0:
            return None
        return (similarity - self.mean) / self.deviation


def similarities_of_matches(
    matches: npt.NDArray[np.integer], num_perm: int
) -> tuple[Floats, Floats]:
    """S as so many equal lowest bytes of signatures tell it, and the standard error of each.

    Args:
        matches: how many of the ``num_perm`` bytes are equal, shape ``(n,)``.
        num_perm: h.

    Returns:
        Two vectors of shape ``(n,)``.
    """
    equal = np.clip(matches / num_perm, _CHANCE, 1.0)
    jaccard = (equal - _CHANCE) / (1 - _CHANCE)
    # One match in h stands for the least variance there is: none seen is not none to be seen.
    variance = np.maximum(equal * (1 - equal), (1 - 1 / num_perm) / num_perm) / num_perm
    errors = 2 / (1 + jaccard) ** 2 * np.sqrt(variance) / (1 - _CHANCE)
    return 2 * jaccard / (1 + jaccard), errors


def _median(values: Floats, models: Counts) -> float:
    """The middle value, of two in the middle their mean."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(models[order])
    middle = [(int(upto[-1]) - 1) // 2 + 1, int(upto[-1]) // 2 + 1]  # counted from 1
    return float(values[order[np.searchsorted(upto, middle)]].mean())


def _without_noise(variance: float, errors: Floats, models: Counts) -> float:
    if variance < _ROUNDING:
        return 0.0
    noise = float(errors**2 @ models) / int(models.sum())
    return math.sqrt(max(variance - noise, _LEAST * variance))
