"""The measured recall of a stop-list: which pairs are drawn, and what is made of them."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from app.maintenance.recall import STEPS, Pairs, curve
from app.spaces.records import StopList
from modelkin.core.estimators import jaccard_of

H = 256


def similar(rng: np.random.Generator, to: np.ndarray, similarity: float) -> np.ndarray:
    """A signature that agrees in as many values as models of this S do."""
    values = to.copy()
    other = rng.choice(H, H - round(H * jaccard_of(similarity)), replace=False)
    values[other] += np.uint32(1) + rng.integers(0, 1 << 20, other.size, np.uint32)
    return values


def test_pairs_are_drawn_at_every_similarity() -> None:
    """However few near ones there are among many strangers, each S that occurs has pairs."""
    rng = np.random.default_rng(1)
    asked = rng.integers(0, 1 << 30, H, np.uint32)
    wanted = [*(0.1 + 0.02 * rng.standard_normal(3000)).clip(0, 1), 0.5, 0.75, 0.9]
    values = np.stack([similar(rng, asked, s) for s in wanted])
    pairs = Pairs({7: asked}, seed=1)
    for at in range(0, len(wanted), 64):
        pairs.see(list(range(100 + at, 100 + min(at + 64, len(wanted)))), values[at : at + 64])
    drawn = [other - 100 for own, other in pairs.drawn() if own == 7]
    assert {3000, 3001, 3002} <= set(drawn)
    assert len(drawn) < 30


def test_a_pair_is_drawn_once_and_never_with_itself() -> None:
    """Of two models that are both asked for, one asks for the other."""
    values = np.tile(np.arange(H, dtype=np.uint32), (2, 1))
    pairs = Pairs({1: values[0], 2: values[1]}, seed=1)
    pairs.see([1, 2], values)
    assert [{1, 2}] == [set(pair) for pair in pairs.drawn()]


def test_pairs_depend_on_the_seed_alone() -> None:
    """The same models in the same order give the same pairs, whatever their ids."""
    rng = np.random.default_rng(2)
    asked = rng.integers(0, 1 << 30, H, np.uint32)
    values = np.stack([similar(rng, asked, 0.5) for _ in range(40)])
    drawn = []
    for first in (100, 7000):
        pairs = Pairs({1: asked}, seed=3)
        pairs.see(list(range(first, first + 40)), values)
        drawn.append([other - first for _, other in pairs.drawn()])
    assert drawn[0] == drawn[1]
    assert 2 == len(drawn[0])


def test_a_curve_is_the_mean_of_what_is_near() -> None:
    """Pairs within .05 of a point count there, and points without five of them tell nothing."""
    found = [(0.30, 0.2)] * 5 + [(0.34, 0.4)] * 5 + [(0.7, 1.0)] * 4
    points = curve(found)
    assert STEPS + 1 == len(points)
    assert {5: 0.2, 6: 0.3, 7: 0.3} == {
        step: pytest.approx(point) for step, point in enumerate(points) if point is not None
    }


def test_a_curve_never_falls() -> None:
    """Where more distant pairs are found more surely, the nearer ones' recall stands for them."""
    points = curve([(0.3, 0.9)] * 9 + [(0.6, 0.5)] * 9 + [(0.8, 0.7)] * 9)
    known = [point for point in points if point is not None]
    assert sorted(known) == known
    assert (0.5, 0.5, 0.7) == (points[6], points[12], points[16])


def test_no_pair_makes_no_curve() -> None:
    """A space of one model has nobody to be found."""
    assert (None,) * (STEPS + 1) == curve([])


@pytest.mark.parametrize(
    ("similarity", "step"),
    [(0.0, 0), (0.3, 6), (0.34, 6), (0.5, 10), (0.7, 14), (0.9, 18), (1, 20)],
)
def test_recall_is_that_of_the_point_below(similarity: float, step: int) -> None:
    """Between two points the lower one holds, which promises no more than is so."""
    recall = tuple(i / 100 for i in range(STEPS + 1))
    made = StopList(1, 5, 0.5, 10, datetime.now(UTC), recall)
    assert step / 100 == made.recall_at(similarity)
