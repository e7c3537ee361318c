"""Donor weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.kinship import donors
from modelkin.errors import InvalidParameter


@given(similarities=st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_weights_sum_to_one(similarities: list[float]) -> None:
    """Any similarities give weights of sum 1, the more similar never the lighter."""
    weights = donors.weights(similarities)
    assert pytest.approx(1.0) == weights.sum()
    order = np.argsort(similarities)
    assert (np.diff(weights[order]) >= 0).all()


def test_weights_are_proportional() -> None:
    """A donor that is twice as similar weighs twice as much."""
    assert [0.5, 0.25, 0.25, 0.0] == donors.weights([0.8, 0.4, 0.4, 0.0]).tolist()


def test_donors_that_share_nothing_weigh_the_same() -> None:
    """All-zero similarities give equal weights, and no donors give none."""
    assert [0.25] * 4 == donors.weights(np.zeros(4)).tolist()
    assert [] == donors.weights([]).tolist()


@pytest.mark.parametrize("wrong", [[0.5, -0.1], [0.5, 1.5], [0.5, float("nan")]])
def test_what_is_no_similarity(wrong: list[float]) -> None:
    """Anything outside 0 to 1 is refused with its place."""
    with pytest.raises(InvalidParameter, match=r"similarities\[1\] = .* not between 0 and 1"):
        donors.weights(wrong)


def test_a_matrix_is_no_vector() -> None:
    """Weights of several targets at once are not guessed at."""
    matrix: Any = np.ones((2, 2))
    with pytest.raises(InvalidParameter, match=r"shape \(2, 2\)"):
        donors.weights(matrix)


@given(
    similarity=st.floats(0, 1),
    kappa=st.none() | st.floats(-1, 1),
    a=st.integers(1, 1000),
    b=st.integers(1, 1000),
)
def test_unrelated_is_below_a_tenth_beyond_chance(
    similarity: float, kappa: float | None, a: int, b: int
) -> None:
    """Kappa decides; without it, S against the overlap of indices drawn from all of M."""
    found = donors.is_unrelated(similarity, kappa, (a, b), 1000)
    if kappa is not None:
        assert found == (kappa < 0.1)
    elif a * b < 1_000_000:
        chance = 2 * a * b / 1000 / (a + b)
        floor = chance + 0.1 * (1 - chance)
        assert found == (similarity < floor) or abs(similarity - floor) < 1e-9
    else:
        assert not found  # of supports of everything S is 1 by chance, and shows nothing


@pytest.mark.parametrize(("share", "floor"), [(0.001, 0.1009), (0.05, 0.145), (0.2, 0.28)])
def test_the_floor_grows_with_k(share: float, floor: float) -> None:
    """Where supports hold 5% of M, S below .145 is chance; where they hold 20%, below .28."""
    k = round(share * 10**6)
    assert donors.is_unrelated(floor - 1e-6, None, (k, k), 10**6)
    assert not donors.is_unrelated(floor + 1e-6, None, (k, k), 10**6)
