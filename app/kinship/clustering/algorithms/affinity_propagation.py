"""Affinity propagation (Frey and Dueck 2007), by scikit-learn.

The preference, the similarity of a model to itself, decides the number of clusters. The customary
preference, the median of all similarities, splits too much. So this module tries several, from one
that would leave one or two clusters up to the largest similarity, and the selector keeps the best.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.infra.extras import DISTRIBUTION
from app.infra.subprocesses import run_in_subprocess
from app.jobs.service import Progress
from app.kinship.clustering.algorithms.partition_selector import PartitionSelector
from modelkin.errors import InvalidParameter, MissingExtra

__all__ = ["cluster"]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

STAGE: Final = "affinity propagation"
_DAMPING = 0.9
"""Slower than scikit-learn's .5, and settles where that oscillates."""
_CONVERGENCE_ROUNDS = 50
"""Rounds without a change of exemplars after which the algorithm has converged.

Within scikit-learn's 15 a damped message moves too little, and models that are each other's only
kin end as exemplars of themselves.
"""
_NOISE = 1e-4
"""Noise that breaks ties, such as those of copies of a model; too small to decide a cluster.

With scikit-learn's noise, in the last bit of a number, the messages between copies differ only
after hundreds of rounds. Before that, none of them is an exemplar, though nothing changes.
"""
_MAX_ROUNDS = 1_000
_MAX_TOTAL_ROUNDS = 4_000
"""Rounds of all preferences together; planted groups take about 1,000, random models 3,000."""
_PREFERENCE_COUNT = 8
"""Preferences to try, each twice as near to the largest similarity as its predecessor."""
_CANDIDATES = 10
"""Models among which the best pair of exemplars is sought."""
_MIN_SUBPROCESS_MODELS = 300
"""Models from which on all rounds may take seconds, in which nothing can be cancelled."""
_FILTERS_LOCK = threading.Lock()
"""A lock on the filters of warnings, of which a process has one list."""


def cluster(
    similarity: Floats,
    options: Mapping[str, Any],
    seed: int,
    selector: PartitionSelector,
    progress: Progress,
) -> None:
    """Pass the partitions of several preferences to the selector.

    Args:
        similarity: S of all pairs, ``(n, n)``, with n at least 2.
        options: the parameters ``preference`` and ``damping``.
        seed: the seed of the noise that breaks ties.

    Raises:
        InvalidParameter: the algorithm does not converge.
    """
    damping, is_given = options.get("damping", _DAMPING), "preference" in options
    preferences = [options["preference"]] if is_given else _preferences(similarity)
    heartbeat = partial(progress, 0, len(preferences), STAGE)
    heartbeat()
    if len(similarity) < _MIN_SUBPROCESS_MODELS:
        found = _partitions(similarity, preferences, damping, seed)
    else:
        found = run_in_subprocess(
            _partitions, similarity, preferences, damping, seed, meanwhile=heartbeat
        )
    if all(labels is None for labels in found):
        raise _unsettled_error(damping, is_given)
    for preference, labels in zip(preferences, found, strict=True):
        if labels is not None:
            selector.consider(labels, **({} if is_given else {"preference": round(preference, 6)}))


def _unsettled_error(damping: float, is_given: bool) -> InvalidParameter:
    if is_given:
        tried = f"within {_MAX_ROUNDS} rounds at damping {damping}"
        other = "leave preference out"
    else:
        tried = f"for any of {_PREFERENCE_COUNT} preferences at damping {damping}"
        other = "use agglomerative"
    return InvalidParameter(
        f"affinity propagation did not settle {tried}: raise damping, or {other}", field="damping"
    )


def _preferences(similarity: Floats) -> list[float]:
    """Return preferences, from one that leaves one or two clusters to the largest similarity."""
    others = similarity.copy()
    np.fill_diagonal(others, 0.0)
    alone = others.sum(axis=0)
    np.fill_diagonal(others, 1.0)  # an exemplar is its own exemplar, whatever the preference
    best = 0.0
    for candidate in np.argsort(-alone, kind="stable")[:_CANDIDATES]:
        together = np.maximum(others[:, [candidate]], others).sum(axis=0) - 2.0
        together[candidate] = 0.0
        best = max(best, float(together.max()))
    np.fill_diagonal(others, 0.0)
    highest, lowest = float(others.max()), float(alone.max()) - best
    lowest = min(lowest, float(np.median(others)))
    return [highest - (highest - lowest) / 2**step for step in range(_PREFERENCE_COUNT)]


def _partitions(
    similarity: Floats, preferences: Sequence[float], damping: float, seed: int
) -> list[Labels | None]:
    """The labels for each preference; None for a preference that does not settle."""
    n, same = len(similarity), _common_value(similarity)
    if same is not None:  # no messages distinguish such models
        return [np.arange(n) if p > same else np.zeros(n, np.int64) for p in preferences]
    noise = np.random.RandomState(seed).standard_normal(similarity.shape) * _NOISE
    s = similarity + noise
    own = np.diagonal(noise).copy()
    del noise
    found, left = [], _MAX_TOTAL_ROUNDS
    for preference in preferences:
        most = min(left, _MAX_ROUNDS)
        labels, rounds = propagate(s, preference + own, damping, seed, most) if most else (None, 0)
        found.append(labels)
        left -= rounds
    return found


def _common_value(similarity: Floats) -> float | None:
    """The similarity of all pairs, if they have one."""
    first = similarity[0, 1]
    if np.any(similarity[0, 1:] != first):  # so it is nearly always
        return None
    others = similarity[~np.eye(len(similarity), dtype=bool)]
    return float(first) if np.all(others == first) else None


def propagate(
    s: Floats, preferences: Floats, damping: float, seed: int, most: int
) -> tuple[Labels | None, int]:
    """Find labels, None if the exemplars do not settle; and the rounds that it took."""
    try:
        from sklearn.cluster import affinity_propagation
    except ImportError:
        raise MissingExtra("scikit-learn", "clustering", of=DISTRIBUTION) from None
    with _FILTERS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of partitions that do not settle: the rounds show it
        _, labels, rounds = affinity_propagation(
            s,
            preference=preferences,
            convergence_iter=_CONVERGENCE_ROUNDS,
            max_iter=most,
            damping=damping,
            random_state=seed,
            return_n_iter=True,
        )
    return (np.asarray(labels, np.int64) if rounds < most else None), rounds
