"""Affinity propagation (Frey and Dueck 2007), by scikit-learn.

The preference, the similarity of a model to itself, decides the number of clusters. The customary
one, the median of all similarities, splits too much. So this module tries several, from the one
that would leave one or two clusters to the largest similarity, and the selector keeps the best.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.clustering.algorithms.partition_selector import PartitionSelector
from app.jobs.service import Progress
from modelkin.errors import InvalidParameter, MissingExtra

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
_MAX_ROUNDS = 1_000
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
        progress(0, 1, STAGE)
        labels = _propagate(similarity, options["preference"], damping, seed)
        if labels is None:
            raise InvalidParameter(
                f"affinity propagation did not settle within {_MAX_ROUNDS} rounds at damping "
                f"{damping}: raise damping, or leave preference out",
                field="damping",
            )
        selector.consider(labels)
        return
    settled = False
    for done, preference in enumerate(_preferences(similarity)):
        progress(done, _PREFERENCE_COUNT, STAGE)
        labels = _propagate(similarity, preference, damping, seed)
        if labels is not None:
            settled = True
            selector.consider(labels, preference=round(preference, 6))
    if not settled:
        raise InvalidParameter(
            f"affinity propagation did not settle for any of {_PREFERENCE_COUNT} preferences at "
            f"damping {damping}: raise damping, or use agglomerative",
            field="damping",
        )


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
    similarity: Floats, preference: float, damping: float, seed: int
) -> npt.NDArray[np.int64] | None:
    """The labels; None if the algorithm does not converge."""
    try:
        from sklearn.cluster import affinity_propagation
    except ImportError:
        raise MissingExtra("scikit-learn", "clustering", of=".") from None
    with warnings.catch_warnings():  # the rounds and the labels show what it warns of
        warnings.simplefilter("ignore")
        exemplars, labels, rounds = affinity_propagation(
            similarity,
            preference=preference,
            damping=damping,
            convergence_iter=_CONVERGENCE_ROUNDS,
            max_iter=_MAX_ROUNDS,
            random_state=seed,
            return_n_iter=True,
        )
    if rounds >= _MAX_ROUNDS or len(exemplars) == 0:
        return None
    found: npt.NDArray[np.int64] = np.asarray(labels, np.int64)
    return found
