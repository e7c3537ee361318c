"""Budgets: each tensor gives its own largest entries."""

from __future__ import annotations

import warnings
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.layout import Layout
from modelkin.core.selection.selection import (
    SmallSupportWarning,
    select,
    select_support,
)
from modelkin.errors import InvalidImportance, InvalidParameter, SpaceMismatch
from tests.sdk.core.selection.exact import coverage_of

LAYOUT = Layout.of([("first", (2, 3)), ("empty", (0, 4)), ("bias", (1,)), ("last", (5,))])
VALUES = np.array([1, 5, 5, 2, 5, 0, 9, 100, 100, 300, 100, 200], np.float32)


@pytest.mark.parametrize(
    ("budgets", "indices"),
    [
        ({"first": 2, "last": 3}, [1, 2, 7, 9, 11]),  # ties to the lower index within each
        ({"last": 1, "bias": 1}, [6, 9]),
        ({"first": 0, "bias": 1.0}, [6]),
        ({"first": 0.5, "last": Fraction(2, 5)}, [1, 2, 4, 9, 11]),
        (0.5, [1, 2, 4, 6, 9, 11]),
        (0.001, [1, 6, 9]),
    ],
)
def test_each_tensor_gives_its_own_largest(
    each_kernels: ModuleType, budgets: Any, indices: list[int]
) -> None:
    """By counts or shares, for some tensors or all, K is the sum of what each tensor gives."""
    actual = select_support(VALUES, layout=LAYOUT, budgets=budgets)
    assert (indices, 12) == (actual.indices.tolist(), actual.num_parameters)


@pytest.mark.slow
@given(
    values=st.lists(st.sampled_from([0.0, -0.0, 1e-45, 0.5, 1.0, 7.0]), min_size=12, max_size=12),
    budgets=st.tuples(st.integers(0, 6), st.integers(0, 1), st.integers(0, 5)).filter(any),
)
def test_budgets_select_tensor_by_tensor(values: list[float], budgets: tuple[int, ...]) -> None:
    """It is the union of what every tensor alone would give, each moved to its place."""
    importance, expected = np.array(values, np.float32), []
    for k, begin, end in zip(budgets, (0, 6, 7), (6, 7, 12), strict=True):
        order = sorted(range(begin, end), key=lambda i: (-values[i], i))[:k]
        expected += sorted(i for i in order if values[i] > 0)
    named = dict(zip(("first", "bias", "last"), budgets, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSupportWarning)
        try:
            actual = select_support(importance, layout=LAYOUT, budgets=named).indices.tolist()
        except InvalidImportance:
            actual = []
    assert expected == actual


def test_budgets_have_a_coverage_and_a_stability() -> None:
    """select returns the share of the whole mass, and compares resamples under the same budgets."""
    turned = VALUES.copy()
    turned[:6] = VALUES[5::-1]
    selection = select(
        VALUES, layout=LAYOUT, budgets={"first": 2, "last": 2}, resamples=[VALUES, turned]
    )
    assert coverage_of(VALUES, selection.support) == selection.coverage
    assert 3 / 4 == selection.stability  # {1, 2} and {1, 3} of the first, all of the last


def test_tensors_with_too_few_positive_entries_are_named() -> None:
    """A budget beyond a tensor's positive entries takes these, and a warning says where."""
    with pytest.warns(SmallSupportWarning, match=r"1 of 3 tensors have fewer .*'first'.*7 in all"):
        actual = select_support(VALUES, layout=LAYOUT, budgets={"first": 6, "bias": 1, "last": 1})
    assert [0, 1, 2, 3, 4, 6, 9] == actual.indices.tolist()


def test_nothing_positive_under_any_budget() -> None:
    """Zeros alone are an error, though another tensor may have more."""
    with pytest.raises(InvalidImportance, match=r"all 12 entries.* zero where budgets"):
        select_support(VALUES * (np.arange(12) < 7), layout=LAYOUT, budgets={"last": 2})


@pytest.mark.parametrize("at", [3, 8])
def test_impossible_entries_are_named_by_their_place_in_the_whole(at: int) -> None:
    """NaN is refused in tensors with and without a budget, with its index in the importance."""
    spoilt = VALUES.copy()
    spoilt[at] = np.nan
    with pytest.raises(InvalidImportance, match=rf"importance\[{at}\] = nan.*1 of 12"):
        select_support(spoilt, layout=LAYOUT, budgets={"last": 2})


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"budgets": 0.1}, InvalidParameter, "budgets need the layout.*layout_of"),
        ({"layout": LAYOUT, "budgets": 0.1, "k": 3}, InvalidParameter, "leave out k"),
        (
            {"layout": LAYOUT, "budgets": 0.1, "coverage": 1, "k_max": 2},
            InvalidParameter,
            "coverage and k_max",
        ),
        ({"layout": LAYOUT, "budgets": 3}, InvalidParameter, "budgets=3 is a count"),
        ({"layout": LAYOUT, "budgets": 1.5}, InvalidParameter, r"must be in \(0, 1\]"),
        (
            {"layout": LAYOUT, "budgets": {"first": 7}},
            InvalidParameter,
            r"budgets\['first'\] must be 0 to 6",
        ),
        (
            {"layout": LAYOUT, "budgets": {"first": -1}},
            InvalidParameter,
            r"budgets\['first'\] must be 0 to 6",
        ),
        (
            {"layout": LAYOUT, "budgets": {"x": 1, "y": 1}},
            InvalidParameter,
            "2 tensors that are not in the layout: x, y",
        ),
        ({"layout": LAYOUT, "budgets": {"first": 0}}, InvalidParameter, "take no entry"),
        ({"layout": LAYOUT, "budgets": {}}, InvalidParameter, "take no entry"),
        (
            {"layout": Layout.of([("a", (3,))]), "budgets": 0.1},
            SpaceMismatch,
            "3 parameters, the importance 12",
        ),
    ],
)
def test_budgets_that_cannot_be(how: Any, error: type[Exception], message: str) -> None:
    """Each wrong budget is refused with the tensor and what it may be."""
    with pytest.raises(error, match=message):
        select_support(VALUES, **how)
