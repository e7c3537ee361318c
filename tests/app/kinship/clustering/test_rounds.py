"""Affinity propagation and Leiden: rounds within limits, and computations that can be stopped."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import adjusted_rand_score

from app.kinship.clustering.algorithms import affinity_propagation as affinity
from app.kinship.clustering.algorithms import leiden
from app.kinship.clustering.algorithms.partition_selector import PartitionSelector
from modelkin.core.similarity.distances import MatrixDistances
from modelkin.errors import InvalidParameter, JobCancelled

Floats = npt.NDArray[np.float64]


def similarities(seed: int, n: int, groups: int, noise: float) -> Floats:
    """S of n models in groups; without noise full of ties."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, n)
    found = np.where(group[:, None] == group, 0.6, 0.1) + rng.normal(0, noise, (n, n))
    found = (found + found.T) / 2
    np.fill_diagonal(found, 1.0)
    return found


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


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"preference": 0.2}])
def test_many_models_are_clustered_in_a_child(
    options: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds what this process would, and a cancelled job ends while it computes."""
    s = similarities(0, 30, 3, 0.02)
    expected = cluster(s, Stop(), **options).result()
    monkeypatch.setattr(affinity, "_MIN_SUBPROCESS_MODELS", 0)
    found = cluster(s, Stop(), **options).result()
    assert expected.labels.tolist() == found.labels.tolist()
    assert expected.chosen == found.chosen
    stop = Stop(at=2)
    with pytest.raises(JobCancelled):
        cluster(s, stop, **options)
    assert 2 == stop.calls


@pytest.mark.parametrize(("preference", "clusters"), [(0.2, 1), (0.9, 30)])
def test_models_that_are_all_alike_are_together_or_apart(preference: float, clusters: int) -> None:
    """As the preference says: messages distinguish none of them, whatever the noise."""
    s = np.full((30, 30), 0.7)
    found = cluster(s, Stop(), preference=preference).result()
    assert clusters == len(set(found.labels.tolist()))


def test_all_preferences_together_have_a_limit_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preferences that settle within it count, and the rounds are no more."""
    rounds: list[int] = []
    propagate_all = affinity.propagate

    def counted(*arguments: Any) -> Any:
        labels, taken = propagate_all(*arguments)
        rounds.append(taken)
        return labels, taken

    monkeypatch.setattr(affinity, "propagate", counted)
    s = similarities(0, 30, 3, 0.02)
    best = cluster(s, Stop()).result().silhouette
    whole = sum(rounds)
    rounds.clear()
    monkeypatch.setattr(affinity, "_MAX_TOTAL_ROUNDS", 250)
    assert best == cluster(s, Stop()).result().silhouette
    assert 250 == sum(rounds) < whole
    monkeypatch.setattr(affinity, "_MAX_TOTAL_ROUNDS", 30)
    with pytest.raises(InvalidParameter, match="did not settle"):
        cluster(s, Stop())


@pytest.mark.parametrize("seed", range(5))
def test_leiden_goes_on_until_nothing_changes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each iteration is one of igraph's own, until nothing changes or so many were made."""
    import igraph  # which loads matplotlib: no process that only collects needs it

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
