"""Affinity propagation (Frey and Dueck 2007).

The preference, the similarity of a model to itself, decides the number of clusters. The customary
one, the median of all similarities, splits too much. So this module tries several, from the one
that would leave one or two clusters to the largest similarity, and the selector keeps the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.clustering.algorithms.message_passing import propagate
from app.clustering.algorithms.partition_selector import PartitionSelector
from app.jobs.service import Progress
from modelkin.errors import InvalidParameter

__all__ = ["cluster"]

Floats = npt.NDArray[np.float64]

STAGE: Final = "affinity propagation"
_DAMPING = 0.9
"""Slower than scikit-learn's .5, and settles where that oscillates."""
_CONVERGENCE_ROUNDS = 50
"""Rounds without a change of exemplars after which the algorithm has converged.

Within scikit-learn's 15 a damped message moves too little, and models that are each other's only
kin end as exemplars of themselves.
"""
_NOISE = 1e-4
"""What breaks ties, such as those of copies of one model. So small a difference decides no cluster.

With scikit-learn's noise, in the last bit of a number, the messages between copies differ only
after hundreds of rounds. Before that, none of them is an exemplar, though nothing changes.
"""
_MAX_ROUNDS = 1_000
_MAX_TOTAL_ROUNDS = 4_000
"""Rounds of all preferences together; planted groups take about 1,000, random models 3,000."""
_PREFERENCE_COUNT = 8
"""Preferences to try, each twice as near to the largest similarity as the one before."""
_CANDIDATES = 10
"""Models among which the best pair of exemplars is sought."""


def cluster(
    similarity: Floats,
    options: Mapping[str, Any],
    seed: int,
    selector: PartitionSelector,
    progress: Progress,
) -> None:
    """Pass the partitions of several preferences to the selector.

    Args:
        similarity: S of all pairs, ``(n, n)``, n from 3 on.
        options: ``preference``, ``damping``.
        seed: of the noise that breaks ties.

    Raises:
        InvalidParameter: the algorithm does not converge.
    """
    damping = options.get("damping", _DAMPING)
    if "preference" in options:
        check = partial(progress, 0, 1, STAGE)
        check()
        labels, _ = _propagate(similarity, options["preference"], damping, seed, check)
        if labels is None:
            raise InvalidParameter(
                f"affinity propagation did not settle within {_MAX_ROUNDS} rounds at damping "
                f"{damping}: raise damping, or leave preference out",
                field="damping",
            )
        selector.consider(labels)
    elif not _try_preferences(similarity, damping, seed, selector, progress):
        raise InvalidParameter(
            f"affinity propagation did not settle for any of {_PREFERENCE_COUNT} preferences at "
            f"damping {damping}: raise damping, or use agglomerative",
            field="damping",
        )


def _try_preferences(
    similarity: Floats, damping: float, seed: int, selector: PartitionSelector, progress: Progress
) -> bool:
    """Pass the partitions of the preferences that settle to the selector; whether any did."""
    settled, left = False, _MAX_TOTAL_ROUNDS
    for done, preference in enumerate(_preferences(similarity)):
        if left == 0:
            break
        check = partial(progress, done, _PREFERENCE_COUNT, STAGE)
        check()
        labels, rounds = _propagate(similarity, preference, damping, seed, check, left)
        left -= rounds
        if labels is not None:
            settled = True
            selector.consider(labels, preference=round(preference, 6))
    return settled


def _preferences(similarity: Floats) -> list[float]:
    """Preferences from the one that leaves one or two clusters to near the largest similarity."""
    others = similarity.copy()
    np.fill_diagonal(others, 0.0)
    alone = others.sum(axis=0)
    np.fill_diagonal(others, 1.0)  # an exemplar is its own, whatever the preference
    best = 0.0
    for candidate in np.argsort(-alone, kind="stable")[:_CANDIDATES]:
        together = np.maximum(others[:, [candidate]], others).sum(axis=0) - 2.0
        together[candidate] = 0.0
        best = max(best, float(together.max()))
    np.fill_diagonal(others, 0.0)
    highest, lowest = float(others.max()), float(alone.max()) - best
    lowest = min(lowest, float(np.median(others)))
    return [highest - (highest - lowest) / 2**step for step in range(_PREFERENCE_COUNT)]


def _propagate(
    similarity: Floats,
    preference: float,
    damping: float,
    seed: int,
    check: Callable[[], None],
    most: int = _MAX_ROUNDS,
) -> tuple[npt.NDArray[np.int64] | None, int]:
    """The labels, or None if the algorithm does not converge; and the rounds that it took."""
    return propagate(
        similarity,
        preference,
        damping=damping,
        convergence_rounds=_CONVERGENCE_ROUNDS,
        max_rounds=min(most, _MAX_ROUNDS),
        seed=seed,
        check=check,
        noise=_NOISE,
    )
