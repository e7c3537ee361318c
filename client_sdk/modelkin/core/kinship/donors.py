"""Donor weights: the share of each donor in what a target takes from all of them (section 5).

The caller finds and ranks the donors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from modelkin.core.similarity.chance import kappa as beyond_chance
from modelkin.core.similarity.tensors import AT_CHANCE
from modelkin.errors import InvalidParameter

__all__ = [
    "expected_by_size",
    "is_unrelated",
    "proportional",
    "unrelated_floor",
    "weights",
    "zscore_weights",
]

Floats = npt.NDArray[np.float64]

MIN_DEVIATION = 0.05
"""A smaller spread of similarities counts as this: they are nearly the same."""


def weights(similarities: Sequence[float] | Floats) -> Floats:
    """Weights proportional to similarity, ``w_j = S_j / sum S`` (section 5).

    Args:
        similarities: S of each donor to the target, shape ``(n,)``, each 0 to 1.

    Returns:
        Shape ``(n,)``, summing to 1. If no donor shares an index with the target, all weigh the
        same. Without donors the result is empty.

    Raises:
        InvalidParameter: a similarity is not between 0 and 1, or they are not a vector.
    """
    return proportional(_similarities(similarities))


def proportional(scores: Sequence[float] | Floats) -> Floats:
    """Weights proportional to non-negative scores of any kind.

    Returns:
        Shape ``(n,)``, summing to 1; all the same where all scores are 0.

    Raises:
        InvalidParameter: a score is negative or not finite, or they are not a vector.
    """
    values = np.asarray(scores, np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values < np.inf)).all():
        raise InvalidParameter("scores must be a vector of finite numbers, none of them negative")
    largest = float(values.max(initial=0.0))
    if largest == 0.0:
        return np.full(values.size, 1.0 / max(1, values.size))
    shares = values / largest  # so that the sum of large ones stays finite
    return np.asarray(shares / shares.sum(), np.float64)


def zscore_weights(similarities: Sequence[float] | Floats, deviation: float) -> Floats:
    """Weights proportional to ``exp(z_j)``, the z-score of S over the space.

    The S of a whole space differ little, so weights proportional to S are nearly uniform. The mean
    of the space cancels: only its spread matters. A spread below 0.05 counts as 0.05, or tiny
    differences would decide in a space of few or of very similar models.

    Args:
        similarities: as for :func:`weights`.
        deviation: the standard deviation of S over the models of the space; 0 where there is none.

    Returns:
        Shape ``(n,)``, summing to 1.

    Raises:
        InvalidParameter: as for :func:`weights`, or the deviation is negative or not finite.
    """
    values = _similarities(similarities)
    if not 0 <= deviation < np.inf:
        raise InvalidParameter(f"deviation must be at least 0, not {deviation}", field="deviation")
    if values.size == 0:
        return values
    powers = np.exp((values - values.max()) / max(deviation, MIN_DEVIATION))
    return np.asarray(powers / powers.sum(), np.float64)


def is_unrelated(
    similarity: float, kappa: float | None, sizes: tuple[int, int], num_parameters: int
) -> bool:
    """Whether a donor is as near to a target as chance makes two models: kappa is below .1.

    Args:
        similarity: S of the two.
        kappa: S beyond chance by tensor. None where that is unknown: then chance is that of indices
            drawn from all parameters alike, ``S0 = 2ab / M(a + b)``. Supports of real models have
            more in common by chance, so this is a floor: .1 where they are tiny, .145 at 5% of M.
        sizes: a and b, how many indices each of the two has.
        num_parameters: M.
    """
    if kappa is None:
        kappa = beyond_chance(similarity, expected_by_size(sizes, num_parameters))
    return kappa is not None and kappa < AT_CHANCE


def unrelated_floor(sizes: tuple[int, int], num_parameters: int) -> float:
    """The S below which :func:`is_unrelated` holds where kappa is unknown, ``S0 + .1 (1 - S0)``.

    Args:
        sizes: a and b, how many indices each of the two has.
        num_parameters: M.
    """
    expected = expected_by_size(sizes, num_parameters)
    return expected + AT_CHANCE * (1.0 - expected)


def expected_by_size(sizes: tuple[int, int], num_parameters: int) -> float:
    """S0 of indices drawn from all parameters alike, ``2ab / M(a + b)``.

    Args:
        sizes: a and b, how many indices each of the two has.
        num_parameters: M.
    """
    a, b = sizes
    return 2.0 * a * b / (num_parameters * max(1, a + b))


def _similarities(similarities: Sequence[float] | Floats) -> Floats:
    values = np.asarray(similarities, dtype=np.float64)
    if values.ndim != 1:
        raise InvalidParameter(f"similarities must be a vector, not of shape {values.shape}")
    wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if wrong.size:
        at = int(wrong[0])
        raise InvalidParameter(f"similarities[{at}] = {values[at]} is not between 0 and 1")
    return values
