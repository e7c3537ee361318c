"""The measured recall of a stop-list: which pairs are sampled, and the curve they give."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from app.maintenance.recall import STEPS, PairSampler, recall_curve
from app.spaces.records import StopList
from modelkin.core.estimators import jaccard_of

H = 256


def similar(rng: np.random.Generator, to: np.ndarray, similarity: float) -> np.ndarray:
    """A signature that agrees in as many values as those of two models of this S."""
    values = to.copy()
    other = rng.choice(H, H - round(H * jaccard_of(similarity)), replace=False)
    values[other] += np.uint32(1) + rng.integers(0, 1 << 20, other.size, np.uint32)
    return values


def test_pairs_are_drawn_at_every_similarity() -> None:
    """Each S that occurs has pairs, however few near models there are among unrelated ones."""
    rng = np.random.default_rng(1)
    asked = rng.integers(0, 1 << 30, H, np.uint32)
    wanted = [*(0.1 + 0.02 * rng.standard_normal(3000)).clip(0, 1), 0.5, 0.75, 0.9]
    values = np.stack([similar(rng, asked, s) for s in wanted])
    pairs = PairSampler({7: asked}, seed=1)
    for at in range(0, len(wanted), 64):
        pairs.add(list(range(100 + at, 100 + min(at + 64, len(wanted)))), values[at : at + 64])
    sampled = [other - 100 for own, other in pairs.sampled() if own == 7]
    assert {3000, 3001, 3002} <= set(sampled)
    assert len(sampled) < 30


def test_a_pair_is_drawn_once_and_never_with_itself() -> None:
    """Of two query models, only one is the first of their pair."""
    values = np.tile(np.arange(H, dtype=np.uint32), (2, 1))
    pairs = PairSampler({1: values[0], 2: values[1]}, seed=1)
    pairs.add([1, 2], values)
    assert [{1, 2}] == [set(pair) for pair in pairs.sampled()]


def test_pairs_depend_on_the_seed_alone() -> None:
    """The same models in the same order give the same pairs, whatever their ids."""
    rng = np.random.default_rng(2)
    asked = rng.integers(0, 1 << 30, H, np.uint32)
    values = np.stack([similar(rng, asked, 0.5) for _ in range(40)])
    sampled = []
    for first in (100, 7000):
        pairs = PairSampler({1: asked}, seed=3)
        pairs.add(list(range(first, first + 40)), values)
        sampled.append([other - first for _, other in pairs.sampled()])
    assert sampled[0] == sampled[1]
    assert 2 == len(sampled[0])


def test_a_point_is_the_mean_of_near_pairs() -> None:
    """Pairs within .05 of a point count there; a point with fewer than five has no value."""
    found = [(0.30, 0.2)] * 5 + [(0.34, 0.4)] * 5 + [(0.7, 1.0)] * 4
    points = recall_curve(found)
    assert STEPS + 1 == len(points)
    assert {5: 0.2, 6: 0.3, 7: 0.3} == {
        step: pytest.approx(point) for step, point in enumerate(points) if point is not None
    }


def test_a_curve_never_falls() -> None:
    """If more distant pairs are found more surely, the nearer pairs' recall stands for them."""
    points = recall_curve([(0.3, 0.9)] * 9 + [(0.6, 0.5)] * 9 + [(0.8, 0.7)] * 9)
    known = [point for point in points if point is not None]
    assert sorted(known) == known
    assert (0.5, 0.5, 0.7) == (points[6], points[12], points[16])


def test_no_pair_makes_no_curve() -> None:
    """A space of one model has no pair."""
    assert (None,) * (STEPS + 1) == recall_curve([])


@pytest.mark.parametrize(
    ("similarity", "step"),
    [(0.0, 0), (0.3, 6), (0.34, 6), (0.5, 10), (0.7, 14), (0.9, 18), (1, 20)],
)
def test_recall_is_that_of_the_point_below(similarity: float, step: int) -> None:
    """Between two points the lower one holds, so that no recall is promised in excess."""
    recall = tuple(i / 100 for i in range(STEPS + 1))
    made = StopList(1, 5, 0.5, 10, datetime.now(UTC), recall)
    assert step / 100 == made.recall_at(similarity)
