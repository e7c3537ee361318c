"""The measures of the studies, beside the demo's, scipy's and counting by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from demo.data import jensen_shannon, recall
from studies.baselines import of_importance, oracle
from studies.measures import Oracle, interval, mean_of, others, paired, ranking


def mixes(count: int = 12, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(10, 0.3), count)


def test_recall_is_the_demo_s() -> None:
    """Ties count for a client as the demo counts them, and strictly where none are."""
    found = np.vstack([mixes(), mixes()])  # each client has a twin: ties everywhere
    truth, similarity = Oracle(found), np.random.default_rng(1).random((24, 24))
    order = ranking(similarity)
    for k in (1, 4, 8):
        near = [[int(p + (p >= row)) for p in order[row, :k]] for row in range(24)]
        far = jensen_shannon(found)
        expected = np.mean([recall(near[row], far, row) for row in range(24)])
        assert truth.tied_recall(order, k) == pytest.approx(expected)
        assert truth.recall(order, k) <= truth.tied_recall(order, k)


def test_the_truth_agrees_with_itself() -> None:
    """The oracle's own similarity has recall, rank correlation and alignment of the best."""
    found = mixes()
    truth, similarity = Oracle(found), oracle(found)
    assert truth.recall(ranking(similarity), 4) == 1.0
    assert truth.tau(similarity) == pytest.approx(1.0)
    assert truth.tau(-similarity) == pytest.approx(-1.0)
    assert truth.chance(4) == pytest.approx(4 / 11)


def test_alignment_is_the_divergence_of_the_mixture() -> None:
    """Donors that have a client's labels together are aligned; rows without any are left out."""
    labels = np.array([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
    weights = np.array([[0.0, 3.0, 3.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert Oracle(labels).alignment(weights) == pytest.approx(0.0)
    weights[1, 2] = 1.0
    assert Oracle(labels).alignment(weights) == pytest.approx(0.5)


def test_a_paired_difference_has_student_s_interval() -> None:
    """The interval of the differences over seeds is scipy's."""
    ours, theirs = np.array([0.5, 0.7, 0.6, 0.9]), np.array([0.4, 0.75, 0.5, 0.6])
    found = paired(ours.tolist(), theirs.tolist())
    low, high = stats.t.interval(
        0.95, 3, loc=np.mean(ours - theirs), scale=stats.sem(ours - theirs)
    )
    assert (found.mean - found.margin, found.mean + found.margin) == pytest.approx((low, high))
    assert (found.ahead, found.seeds) == (3, 4)
    assert math.isinf(interval([1.0])[1])
    assert mean_of([1.0]) == "1.000"
    assert mean_of([0.1, -0.2, 0.7]) == "0.200 (-0.200 to 0.700)"  # an interval of 1.13
    assert mean_of([0.5, 0.5]) == "0.500 ± 0.000"
    assert mean_of([0.1, 0.2, 0.3, 0.4]) == "0.250 ± 0.205"


def test_a_target_is_met_by_the_whole_interval() -> None:
    """A mean above the bound is not enough, nor is one seed."""
    ours, theirs = [0.5, 0.7, 0.6, 0.9], [0.4, 0.75, 0.5, 0.6]
    found = paired(ours, theirs)
    assert found.mean > 0.1
    assert not found.is_above(0.1)
    assert found.is_above(found.mean - found.margin - 1e-9)
    assert not found.is_above(found.mean - found.margin)
    assert not paired([1.0], [0.0]).is_above(0.0)


def test_distances_are_numpy_s() -> None:
    """Cosine and Euclidean of importances are what numpy says row by row."""
    rows = np.random.default_rng(2).random((5, 40))
    found = of_importance(rows)
    lengths = np.linalg.norm(rows, axis=1)
    expected = rows @ rows.T / np.outer(lengths, lengths)
    assert found["cosine of importance"] == pytest.approx(expected)
    far = np.linalg.norm(np.sqrt(rows)[:, None] - np.sqrt(rows)[None], axis=-1)
    assert others(found["Euclidean of importance^1/2"]) == pytest.approx(others(-far), abs=1e-7)
