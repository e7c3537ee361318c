"""Means of adapters of any ranks, beside numpy's own sums and singular values of whole matrices."""

from __future__ import annotations

from math import hypot
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from numpy.testing import assert_allclose

from modelkin.errors import InvalidParameter
from modelkin.federation.adapters import (
    LowRank,
    mean_of_rank,
    odd_adapters,
    of_rank,
    stacked_mean,
)

SHAPES = {"q.weight": (12, 9), "v.weight": (7, 15)}
RANKS = {"ana": 2, "ben": 4, "cem": 8, "dia": 16}
WEIGHTS = {"ana": 30.0, "ben": 1.0, "cem": 7.5, "dia": 12}
ONE = {"ana": {"q.weight": LowRank(np.ones((12, 1)), np.ones((1, 9)))}}

Matrix = npt.NDArray[np.float64]


def drawn(seed: int, rank: int) -> dict[str, LowRank]:
    """An adapter of normally distributed factors."""
    normal = np.random.default_rng(seed).normal
    return {
        name: LowRank(normal(size=(out, rank)), normal(size=(rank, inner)))
        for name, (out, inner) in SHAPES.items()
    }


ADAPTERS = {name: drawn(seed, rank) for seed, (name, rank) in enumerate(RANKS.items())}


def dense(weights: dict[str, float], name: str) -> Matrix:
    """The weighted mean of whole differences."""
    parts = [weights[each] * ADAPTERS[each][name].product() for each in ADAPTERS]
    return np.asarray(sum(parts) / sum(weights.values()))


def best(whole: Matrix, rank: int) -> Matrix:
    """The best approximation, by numpy's decomposition of the whole matrix."""
    u, s, v = np.linalg.svd(whole, full_matrices=False)
    return np.asarray((u[:, :rank] * s[:rank]) @ v[:rank])


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_a_stacked_mean_is_exact(weights: dict[str, float] | None) -> None:
    """It is the mean of the differences, of the sum of all ranks."""
    mean = stacked_mean(ADAPTERS, weights)
    for name in SHAPES:
        expected = dense(weights or dict.fromkeys(RANKS, 1.0), name)
        assert_allclose(mean[name].product(), expected, rtol=0, atol=1e-13)
        assert sum(RANKS.values()) == mean[name].rank


@pytest.mark.parametrize("rank", [1, 3, 7, 40])
def test_a_mean_of_a_rank_is_the_best_one(rank: int) -> None:
    """No matrix of that rank is nearer, and the errors are those of the whole matrices."""
    mean = mean_of_rank(ADAPTERS, WEIGHTS, rank=rank)
    lost, whole = [], []
    for name in SHAPES:
        exact = dense(WEIGHTS, name)
        assert mean.adapter[name].rank == min(rank, *SHAPES[name])
        assert_allclose(mean.adapter[name].product(), best(exact, rank), rtol=0, atol=1e-12)
        lost.append(float(np.linalg.norm(exact - best(exact, rank))))
        whole.append(float(np.linalg.norm(exact)))
        assert_allclose(mean.errors[name], lost[-1] / whole[-1], rtol=0, atol=1e-13)
    assert_allclose(mean.error, hypot(*lost) / hypot(*whole), rtol=0, atol=1e-13)


def test_means_of_factors_are_another_model() -> None:
    """Of two clients of one rank the product of the means of A and of B is far from the mean."""
    two = {"a": drawn(5, 4), "b": drawn(6, 4)}
    exact = stacked_mean(two)["q.weight"].product()
    b = (two["a"]["q.weight"].b + two["b"]["q.weight"].b) / 2
    naive = b @ (two["a"]["q.weight"].a + two["b"]["q.weight"].a) / 2
    assert np.linalg.norm(naive - exact) > 0.5 * np.linalg.norm(exact)


def test_one_adapter_is_its_own_mean() -> None:
    """A client alone gets its differences back, by no more than its rank."""
    mean = mean_of_rank({"ben": ADAPTERS["ben"]}, rank=10)
    for name in SHAPES:
        assert_allclose(mean.adapter[name].product(), ADAPTERS["ben"][name].product(), atol=1e-12)
    assert {4} == {each.rank for each in mean.adapter.values()}
    assert 0.0 == mean.error


def test_factors_of_any_size_are_cut_well() -> None:
    """What one client has in A and another in B are of one size in their product."""
    left, right = drawn(1, 2)["q.weight"], drawn(2, 2)["q.weight"]
    sizes = {
        "a": {"q.weight": LowRank(left.b * 1e9, left.a / 1e9)},
        "b": {"q.weight": LowRank(right.b / 1e9, right.a * 1e9)},
    }
    expected = (left.product() + right.product()) / 2
    assert_allclose(mean_of_rank(sizes, rank=4).adapter["q.weight"].product(), expected, atol=1e-13)


def test_the_order_of_clients_does_not_matter() -> None:
    """Sums are in the order of the clients' names."""
    backwards = dict(reversed(ADAPTERS.items()))
    for name, each in stacked_mean(ADAPTERS, WEIGHTS).items():
        other = stacked_mean(backwards, WEIGHTS)[name]
        assert np.array_equal(each.a, other.a)
        assert np.array_equal(each.b, other.b)


def test_a_client_of_weight_0_is_left_out() -> None:
    """It adds nothing, and no rank either."""
    mean = stacked_mean(ADAPTERS, {**WEIGHTS, "dia": 0.0})
    assert {14} == {each.rank for each in mean.values()}
    assert_allclose(mean["q.weight"].product(), dense({**WEIGHTS, "dia": 0.0}, "q.weight"))


def test_an_adapter_that_changes_nothing_has_no_error() -> None:
    """As before any training, when B is 0."""
    nothing = {"q.weight": LowRank(np.zeros((12, 3)), np.ones((3, 9)))}
    cut = of_rank(nothing, 2)
    assert 0.0 == cut.error == cut.errors["q.weight"]
    assert np.array_equal(np.zeros((12, 9)), cut.adapter["q.weight"].product())


def test_each_tensor_may_have_a_rank_of_its_own() -> None:
    """As PEFT's rank_pattern has it."""
    cut = of_rank(ADAPTERS["dia"], {"q.weight": 1, "v.weight": 5}).adapter
    assert (1, 5) == (cut["q.weight"].rank, cut["v.weight"].rank)


OTHER_SHAPE = {**drawn(9, 4), "q.weight": LowRank(np.ones((12, 4)), np.ones((4, 8)))}


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({}, "changes no tensor"),
        ({"q.weight": drawn(9, 4)["q.weight"]}, "does not target 'v.weight', and others do"),
        (
            {**drawn(9, 4), "k.weight": drawn(9, 4)["q.weight"]},
            "targets 'k.weight', and others do not",
        ),
        (OTHER_SHAPE, r"has the shape \[12, 8\], not \[12, 9\]"),
    ],
)
def test_an_adapter_of_another_layout_is_named(odd: dict[str, LowRank], why: str) -> None:
    """The error names the client; the mean of the others is what it is without it."""
    sent = {"aaa": odd, **ADAPTERS}
    with pytest.raises(InvalidParameter, match=f"client 'aaa': .*{why}"):
        stacked_mean(sent)
    assert {"aaa"} == odd_adapters(sent).keys()
    assert {} == odd_adapters(ADAPTERS)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"adapters": {}}, "there is no adapter"),
    ({"weights": {"ana": -1.0}}, "client 'ana': a weight is a number of 0 or more, not -1.0"),
    ({"weights": {"ana": float("nan")}}, "client 'ana': .* not nan"),
    ({"weights": {"ana": float("inf")}}, "client 'ana': .* not inf"),
    ({"weights": {"ana": True}}, "client 'ana': .* not True"),
    ({"weights": {"ben": 1.0}}, "client 'ana': .* not None"),
    ({"weights": {"ana": 0.0}}, "weights of all clients are 0"),
    ({"rank": 0}, "rank must be a whole number of at least 1, not 0"),
    ({"rank": 2.0}, "not 2.0"),
    ({"rank": True}, "not True"),
]


@pytest.mark.parametrize(("wrong", "why"), WRONG)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], why: str) -> None:
    """A weight or a rank that is none is an error that says whose."""
    right: dict[str, Any] = {"adapters": ONE, "weights": {"ana": 1.0}, "rank": 1}
    asked = {**right, **wrong}
    with pytest.raises(InvalidParameter, match=why):
        mean_of_rank(asked["adapters"], asked["weights"], rank=asked["rank"])


@pytest.mark.parametrize(
    ("b", "a", "why"),
    [
        (np.ones((3, 2)), np.ones((3, 4)), "have no product"),
        (np.ones(3), np.ones((1, 4)), "have no product"),
        (np.full((3, 1), np.nan), np.ones((1, 4)), "NaN or infinite"),
        (np.ones((3, 1)), np.full((1, 4), np.inf), "NaN or infinite"),
    ],
)
def test_factors_that_make_no_difference_are_refused(b: Matrix, a: Matrix, why: str) -> None:
    """Two matrices that fit, of numbers."""
    with pytest.raises(InvalidParameter, match=why):
        LowRank(b, a)
