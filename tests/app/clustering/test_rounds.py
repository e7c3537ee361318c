"""Affinity propagation and Leiden round by round: as their libraries, within limits, stoppable."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import igraph
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import affinity_propagation
from sklearn.metrics import adjusted_rand_score

from app.clustering.algorithms import affinity_propagation as affinity
from app.clustering.algorithms import leiden
from app.clustering.algorithms.message_passing import propagate
from app.clustering.algorithms.partition_selector import PartitionSelector
from modelkin.core.similarity.distances import MatrixDistances
from modelkin.errors import InvalidParameter, JobCancelled

Floats = npt.NDArray[np.float64]

_MAX_ROUNDS = 200


def similarities(seed: int, n: int, groups: int, noise: float) -> Floats:
    """S of n models in groups; without noise full of ties."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, n)
    found = np.where(group[:, None] == group, 0.6, 0.1) + rng.normal(0, noise, (n, n))
    found = (found + found.T) / 2
    np.fill_diagonal(found, 1.0)
    return found


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    n=st.integers(2, 70),
    groups=st.integers(1, 8),
    noise=st.sampled_from([0.0, 0.02, 0.3]),
    preference=st.floats(-20, 0.9),
    damping=st.sampled_from([0.5, 0.7, 0.9]),
)
def test_messages_are_those_of_scikit_learn(
    seed: int, n: int, groups: int, noise: float, preference: float, damping: float
) -> None:
    """The same labels after the same number of rounds."""
    s = similarities(seed, n, groups, noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exemplars, expected, rounds = affinity_propagation(
            s,
            preference=preference,
            damping=damping,
            convergence_iter=15,
            max_iter=_MAX_ROUNDS,
            random_state=seed,
            return_n_iter=True,
        )
    labels, count = propagate(
        s,
        preference,
        damping=damping,
        convergence_rounds=15,
        max_rounds=_MAX_ROUNDS,
        seed=seed,
        check=lambda: None,
    )
    if rounds == _MAX_ROUNDS or len(exemplars) == 0:
        assert (None, _MAX_ROUNDS) == (labels, count)
    else:
        assert labels is not None
        assert (expected.tolist(), rounds) == (labels.tolist(), count)


class Stop:
    """A report of progress that counts its calls, and cancels the job in one of them."""

    def __init__(self, at: int = 1 << 30) -> None:
        self.calls = 0
        self._at = at

    def __call__(self, done: int, total: int, stage: str = "") -> None:
        self.calls += 1
        if self.calls == self._at:
            raise JobCancelled("enough")


def cluster(s: Floats, progress: Callable[..., None], **options: Any) -> PartitionSelector:
    """What affinity propagation passes to the selector."""
    selector = PartitionSelector(MatrixDistances(s), 0, None)
    affinity.cluster(s, options, 0, selector, progress)
    return selector


@pytest.mark.parametrize("sizes", [(9, 9, 3), (3, 1, 8, 9), (2, 2, 2), (12, 5, 2, 2, 1, 1)])
@pytest.mark.parametrize("between", [0.17, 0.57])
@pytest.mark.parametrize("options", [{}, {"preference": 0.6}])
def test_copies_have_an_exemplar(
    sizes: tuple[int, ...], between: float, options: dict[str, float]
) -> None:
    """Any of them will do, and they do not join a cluster of others for want of one."""
    truth = np.repeat(np.arange(len(sizes)), sizes)
    s = np.where(truth[:, None] == truth, 1.0, between)
    found = cluster(s, Stop(), **options).result()
    assert 1.0 == adjusted_rand_score(truth, found.labels)


@pytest.mark.parametrize("options", [{}, {"preference": 0.2}])
def test_affinity_propagation_stops_between_two_rounds(options: dict[str, float]) -> None:
    """Before each round it reports its progress, and so it can be cancelled there."""
    stop = Stop(at=20)
    with pytest.raises(JobCancelled):
        cluster(similarities(0, 30, 3, 0.02), stop, **options)
    assert 20 == stop.calls


def test_all_preferences_together_have_a_limit_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preferences that settle within it count, and the rounds are no more."""
    s = similarities(0, 30, 3, 0.02)
    whole = Stop()
    best = cluster(s, whole).result().silhouette
    monkeypatch.setattr(affinity, "_MAX_TOTAL_ROUNDS", 250)
    part = Stop()
    assert best == cluster(s, part).result().silhouette
    assert 250 <= part.calls <= 250 + 8 < whole.calls
    monkeypatch.setattr(affinity, "_MAX_TOTAL_ROUNDS", 30)
    with pytest.raises(InvalidParameter, match="did not settle"):
        cluster(s, Stop())


@pytest.mark.parametrize("seed", range(5))
def test_leiden_goes_on_until_nothing_changes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each iteration is one of igraph's own, until nothing changes or so many were made."""
    rng = np.random.default_rng(seed)
    n = 200
    ends = rng.integers(0, n, (2000, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    weights = rng.uniform(0.0, 1.0, len(ends)) + (ends[:, 0] // 20 == ends[:, 1] // 20)
    graph = igraph.Graph(n=n, edges=ends)
    igraph.set_random_number_generator(random.Random(seed))
    try:
        expected = graph.community_leiden(
            objective_function="modularity", weights=weights, resolution=2.0, n_iterations=-1
        ).membership
    finally:
        igraph.set_random_number_generator(random)
    found = leiden.communities(n, ends, weights, (0.5, 2.0), seed, lambda: None)
    assert expected == found[1].tolist()
    monkeypatch.setattr(leiden, "_MAX_ITERATIONS", 1)
    once = leiden.communities(n, ends, weights, (2.0,), seed, lambda: None)
    assert expected != once[0].tolist()
