"""``Background``: the distribution of one model's similarities to the models of a space.

A single similarity is significant compared with it, or not. It comes from the equal bytes of
signatures that a scan counts anyway, and its spread is corrected for the noise of signatures.
Where kin and strangers of the model form two populations, the lower one is the background.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Background", "similarities_of_matches"]

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_BYTE_COLLISION_RATE = 1 / 256
"""The probability that the lowest bytes of two different minhashes are equal."""
_MIN_VARIANCE_SHARE = 0.25
"""The least share of the observed variance that counts as the models' own: noise is only known on
average, and with a spread near 0 every model would stand out.
"""
_ROUNDING_VARIANCE = 1e-12
"""The variance below which all differences of similarities are rounding."""
_DEVIATION_PER_MAD = 1.4826
"""The standard deviation of normal values, in units of their median absolute deviation."""
_MIN_Z_SCORE = 3.0
"""How many deviations above the centre a model stands out."""
_MIN_DEVIATION = 0.02
"""The least deviation of the similarities of unrelated models."""
_MIN_LOWER_MODELS, _MIN_LOWER_SHARE = 3, 0.1
"""The least number and share of all models that are a lower population, and no outliers."""
_MIN_SEPARATED_SHARE = 0.9
"""The least share of the upper models beyond the limit of the lower: two populations."""


@dataclass(frozen=True, slots=True)
class Background:
    """The centre and the spread of the similarities of one model to others.

    Attributes:
        mean: the centre of S: its mean, or its median where the background is robust.
        deviation: the standard deviation of S over models; 0 where it is unknown.
        models: how many models it describes.
    """

    mean: float
    deviation: float
    models: int

    @classmethod
    def of(cls, similarities: Floats, errors: Floats, models: Counts) -> Background:
        """Mean and standard deviation.

        Args:
            similarities: estimates of S, shape ``(n,)``.
            errors: the standard errors of these, shape ``(n,)``.
            models: how many models have each, shape ``(n,)``; possibly none.
        """
        total = int(models.sum())
        if total == 0:
            return cls(0.0, 0.0, 0)
        mean = float(similarities @ models) / total
        variance = float((similarities - mean) ** 2 @ models) / total
        return cls(mean, _without_noise(variance, errors, models), total)

    @classmethod
    def robust(cls, similarities: Floats, errors: Floats, models: Counts) -> Background:
        """Median, and the deviation estimated from the median distance to it.

        Kin do not shift it, as long as they are fewer than half of all models. Arguments are those
        of :meth:`of`.
        """
        total = int(models.sum())
        if total == 0:
            return cls(0.0, 0.0, 0)
        middle = _median(similarities, models)
        spread = _DEVIATION_PER_MAD * _median(np.abs(similarities - middle), models)
        return cls(middle, _without_noise(spread**2, errors, models), total)

    @classmethod
    def of_unrelated(cls, similarities: Floats, errors: Floats, models: Counts) -> Background:
        """The robust background of the models, or of the lower of their two populations.

        Models are two populations if the cut that leaves the least variance on its two sides also
        parts them: at least 3 models and a tenth of all lie below, and nine tenths of those above
        lie beyond the limit of those below. A lower population is cut again likewise. Arguments are
        those of :meth:`of`.
        """
        present = np.flatnonzero(models)
        order = present[np.argsort(similarities[present], kind="stable")]
        least = max(_MIN_LOWER_MODELS, _MIN_LOWER_SHARE * int(models.sum()))
        while lower := _lower_population(similarities[order], errors[order], models[order], least):
            order = order[:lower]
        return cls.robust(similarities[order], errors[order], models[order])

    @property
    def limit(self) -> float:
        """The largest similarity that an unrelated model may have, 1 at most."""
        return min(1.0, self.mean + _MIN_Z_SCORE * max(self.deviation, _MIN_DEVIATION))

    def z_score(self, similarity: float) -> float | None:
        """How many standard deviations S is above the mean; None where there is no spread."""
        if self.deviation == 0:
            return None
        return (similarity - self.mean) / self.deviation


def similarities_of_matches(
    matches: npt.NDArray[np.integer], num_perm: int
) -> tuple[Floats, Floats]:
    """Estimate S from the number of equal lowest bytes of signatures, with its standard error.

    Args:
        matches: how many of the ``num_perm`` bytes are equal, shape ``(n,)``.
        num_perm: h.

    Returns:
        Two vectors of shape ``(n,)``.
    """
    equal = np.clip(matches / num_perm, _BYTE_COLLISION_RATE, 1.0)
    jaccard = (equal - _BYTE_COLLISION_RATE) / (1 - _BYTE_COLLISION_RATE)
    # The variance is at least that of one match in h: no match observed does not mean none exists.
    variance = np.maximum(equal * (1 - equal), (1 - 1 / num_perm) / num_perm) / num_perm
    errors = 2 / (1 + jaccard) ** 2 * np.sqrt(variance) / (1 - _BYTE_COLLISION_RATE)
    return 2 * jaccard / (1 + jaccard), errors


def _median(values: Floats, models: Counts) -> float:
    """The middle value, or the mean of the two middle values."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(models[order])
    middle = [(int(upto[-1]) - 1) // 2 + 1, int(upto[-1]) // 2 + 1]  # counted from 1
    return float(values[order[np.searchsorted(upto, middle)]].mean())


def _lower_population(similarities: Floats, errors: Floats, models: Counts, least: float) -> int:
    """How many of the ascending similarities are of a lower population; 0 if there is only one."""
    if similarities.size < 2:
        return 0
    below, sums = np.cumsum(models), np.cumsum(similarities * models)
    lower, upper = below[:-1], below[-1] - below[:-1]
    gaps = (sums[-1] - sums[:-1]) / upper - sums[:-1] / lower
    cut = int(np.argmax(lower * upper * gaps**2)) + 1
    if lower[cut - 1] < least:
        return 0
    limit = _limit_with_noise(similarities[:cut], errors[:cut], models[:cut])
    beyond = int(models[cut:][similarities[cut:] > limit].sum())
    return cut if beyond >= _MIN_SEPARATED_SHARE * upper[cut - 1] else 0


def _limit_with_noise(similarities: Floats, errors: Floats, models: Counts) -> float:
    """The limit of a population by its widest spread, which is at least the noise of estimates."""
    exact, noise = np.zeros_like(errors), math.sqrt(float(errors**2 @ models) / int(models.sum()))
    of = (Background.of, Background.robust)
    plain, robust = (make(similarities, exact, models) for make in of)
    spread = max(plain.deviation, robust.deviation, noise)
    return Background(robust.mean, spread, robust.models).limit


def _without_noise(variance: float, errors: Floats, models: Counts) -> float:
    if variance < _ROUNDING_VARIANCE:
        return 0.0
    noise = float(errors**2 @ models) / int(models.sum())
    return math.sqrt(max(variance - noise, _MIN_VARIANCE_SHARE * variance))
