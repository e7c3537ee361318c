"""Affinity propagation (Frey and Dueck 2007), by scikit-learn.

What decides the number of clusters is the preference, how similar a model is to itself as an
exemplar. The customary one, the median of all similarities, splits too much; so those between the
one that would leave one or two clusters and the largest similarity are tried, and the best kept.
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
_SETTLED = 50
"""Rounds without a change of exemplars after which it has settled: in scikit-learn's 15 a damped
message moves too little, and models that are each other's only kin end as exemplars of themselves.
"""
_ROUNDS = 1_000
_TRIED = 8
"""Preferences, each twice as near to the largest similarity as the one before."""
_CANDIDATES = 10
"""Models among which the pair is sought that serves as exemplars best."""


def cluster(
    similarity: Floats,
    options: Mapping[str, Any],
    seed: int,
    judge: PartitionSelector,
    progress: Progress,
) -> None:
    """Let the judge consider what it finds.

    Args:
        similarity: S of all pairs, ``(n, n)``, n from 3 on.
        options: ``preference``, ``damping``.
        seed: of the noise that breaks ties.

    Raises:
        InvalidParameter: it does not settle.
    """
    damping = options.get("damping", _DAMPING)
    if "preference" in options:
        progress(0, 1, STAGE)
        labels = _propagate(similarity, options["preference"], damping, seed)
        if labels is None:
            raise InvalidParameter(
                f"affinity propagation did not settle within {_ROUNDS} rounds at damping "
                f"{damping}: raise damping, or leave preference out",
                field="damping",
            )
        judge.consider(labels)
        return
    settled = False
    for done, preference in enumerate(_preferences(similarity)):
        progress(done, _TRIED, STAGE)
        labels = _propagate(similarity, preference, damping, seed)
        if labels is not None:
            settled = True
            judge.consider(labels, preference=round(preference, 6))
    if not settled:
        raise InvalidParameter(
            f"affinity propagation settled for none of {_TRIED} preferences at damping {damping}: "
            f"raise damping, or ask for agglomerative",
            field="damping",
        )


def _preferences(similarity: Floats) -> list[float]:
    """From the one that leaves one or two clusters to near the largest similarity."""
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
    return [highest - (highest - lowest) / 2**step for step in range(_TRIED)]


def _propagate(
    similarity: Floats, preference: float, damping: float, seed: int
) -> npt.NDArray[np.int64] | None:
    """The labels; None where it does not settle."""
    try:
        from sklearn.cluster import affinity_propagation
    except ImportError:
        raise MissingExtra("scikit-learn", "clustering", of=".") from None
    with warnings.catch_warnings():  # what it warns of is told by the rounds and the labels
        warnings.simplefilter("ignore")
        exemplars, labels, rounds = affinity_propagation(
            similarity,
            preference=preference,
            damping=damping,
            convergence_iter=_SETTLED,
            max_iter=_ROUNDS,
            random_state=seed,
            return_n_iter=True,
        )
    if rounds >= _ROUNDS or len(exemplars) == 0:
        return None
    found: npt.NDArray[np.int64] = np.asarray(labels, np.int64)
    return found
