"""Shapley values of the nearest neighbours, against their definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.kinship.shapley import knn_shapley
from modelkin.errors import InvalidParameter

WORTHS = st.lists(st.floats(-2, 2, allow_subnormal=False), min_size=1, max_size=6)
COUNTS = st.integers(1, 8)


def utility(worth: list[float], coalition: tuple[int, ...], neighbors: int) -> float:
    """What a coalition's nearest members are worth; members are named by their nearness."""
    return sum(worth[i] for i in sorted(coalition)[:neighbors]) / neighbors


def by_subsets(worth: list[float], neighbors: int) -> list[float]:
    """Shapley's sum over all coalitions of the others (Shapley 1953)."""
    n = len(worth)
    values = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        value = 0.0
        for size in range(n):
            share = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            for coalition in itertools.combinations(others, size):
                joined = utility(worth, (*coalition, i), neighbors)
                value += share * (joined - utility(worth, coalition, neighbors))
        values.append(value)
    return values


def by_permutations(worth: list[float], neighbors: int) -> list[float]:
    """The mean of what each adds when all come one by one, over every order."""
    n = len(worth)
    values = np.zeros(n)
    for order in itertools.permutations(range(n)):
        for place, i in enumerate(order):
            before, after = order[:place], order[: place + 1]
            values[i] += utility(worth, after, neighbors) - utility(worth, before, neighbors)
    return list(values / math.factorial(n))


@given(worth=WORTHS, neighbors=COUNTS)
def test_values_are_those_of_all_coalitions(worth: list[float], neighbors: int) -> None:
    """The recursion gives Shapley's sum over every coalition, whatever the donors are worth."""
    expected = by_subsets(worth, neighbors)
    assert expected == pytest.approx(knn_shapley(worth, neighbors).tolist(), abs=1e-12)


@pytest.mark.parametrize("neighbors", [1, 2, 3, 9])
def test_values_are_those_of_all_orders(neighbors: int) -> None:
    """Two definitions, one value: the mean over every order in which donors may come."""
    worth = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    expected = by_permutations(worth, neighbors)
    assert expected == pytest.approx(knn_shapley(worth, neighbors).tolist(), abs=1e-12)


@given(worth=st.lists(st.floats(-1, 1), max_size=200), neighbors=COUNTS)
def test_values_share_out_what_all_are_worth(worth: list[float], neighbors: int) -> None:
    """They sum to what all donors are worth together: nothing is lost and nothing made."""
    total = utility(worth, tuple(range(len(worth))), neighbors)
    assert total == pytest.approx(knn_shapley(worth, neighbors).sum(), abs=1e-9)


def test_equal_worths_favour_the_near() -> None:
    """Of donors of equal worth the nearer is never worth less, and within K all are alike."""
    values = knn_shapley(np.ones(10), 3)
    assert (np.diff(values) <= 1e-15).all()
    assert values[0] == pytest.approx(values[2])


@pytest.mark.parametrize("wrong", [[float("nan")], [float("inf"), 1.0], [[1.0]]])
def test_what_is_no_worth(wrong: list[float]) -> None:
    """Only a vector of finite numbers is shared out."""
    with pytest.raises(InvalidParameter, match="vector of finite numbers"):
        knn_shapley(wrong, 1)


def test_no_neighbor_counts_nothing() -> None:
    """A game without a counted neighbor is refused."""
    with pytest.raises(InvalidParameter, match="at least 1, not 0"):
        knn_shapley([1.0], 0)
