"""Stability is Eq. 1, and a selection looks for a stable K as Algorithm 1 does."""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import modelkin
from modelkin.core.selection.selection import (
    UnstableSupportWarning,
    select,
    select_support,
)
from modelkin.core.selection.stability import stability
from modelkin.core.support import Support
from modelkin.errors import InvalidImportance, InvalidParameter, SpaceMismatch
from tests.sdk.core.selection.exact import coverage_of

Floats = npt.NDArray[np.float32]


def support(*indices: int) -> Support:
    return Support.from_indices(list(indices), 20)


def floats(*values: float) -> Floats:
    return np.array(values, np.float32)


@given(st.lists(st.sets(st.integers(0, 19), min_size=6, max_size=6), min_size=2, max_size=6))
def test_stability_is_the_mean_pairwise_overlap(sets: list[set[int]]) -> None:
    """For supports of one size it is Eq. 1 to the letter."""
    pairs = [len(a & b) / 6 for a, b in combinations(sets, 2)]
    actual = stability(support(*sorted(indices)) for indices in sets)
    assert pytest.approx(sum(pairs) / len(pairs)) == actual


def test_stability_of_unequal_sizes() -> None:
    """Supports that lack positive entries overlap by Sorensen and Dice."""
    assert pytest.approx(2 * 1 / (3 + 1)) == stability([support(1, 2, 3), support(2)])


@pytest.mark.parametrize("supports", [[], [support(1)]])
def test_stability_compares(supports: list[Support]) -> None:
    """Fewer than two supports have no stability."""
    with pytest.raises(InvalidParameter, match="two supports or more"):
        stability(supports)


def test_stability_needs_one_space() -> None:
    """Supports of different numbers of parameters are an error, not a zero."""
    with pytest.raises(SpaceMismatch):
        stability([support(1), Support.from_indices([1], 5)])


IMPORTANCE = floats(9, 8, 7, 6, 5, 1, 1, 1, 1, 1)
# The first three of both are {0, 1, 2} and {0, 1, 3}; the first four agree, and so do the first 5.
RESAMPLES = [floats(9, 8, 7, 6, 5, 1, 1, 1, 1, 1), floats(9, 8, 6, 7, 5, 1, 1, 1, 1, 1)]
K_STAR: dict[str, Any] = {"coverage": 0.6, "k_max": 1.0}  # 24 of 40


@pytest.mark.parametrize(
    ("target", "k", "rho"), [(0.5, 3, 2 / 3), (2 / 3, 3, 2 / 3), (0.7, 4, 1.0), (1.0, 4, 1.0)]
)
def test_the_first_stable_k_is_taken(target: float, k: int, rho: float) -> None:
    """Of K*, K* + 1 and K* + 2 the first whose resamples overlap by the target is taken."""
    selection = select(IMPORTANCE, **K_STAR, stability=target, resamples=RESAMPLES)
    assert (k, True) == (selection.support.k, selection.met)
    assert pytest.approx(rho) == selection.stability
    assert coverage_of(IMPORTANCE, selection.support) == selection.coverage


@pytest.mark.parametrize(("k_max", "tried"), [(5, 3), (4, 2), (3, 1)])
def test_where_none_is_stable_k_star_stays(k_max: int, tried: int) -> None:
    """No further than K* + 2 or the cap is looked, and then K* stays, with a warning."""
    apart = [IMPORTANCE, IMPORTANCE[::-1]]
    with pytest.warns(UnstableSupportWarning, match="K stays 3") as caught:
        selection = select(IMPORTANCE, coverage=0.6, k_max=k_max, stability=0.9, resamples=apart)
    assert (3, 0.0, False) == (selection.support.k, selection.stability, selection.met)
    assert tried == str(caught[0].message).count(" at K = ")
    assert __file__ == caught[0].filename


def test_select_support_is_the_support_of_select() -> None:
    """Both take the same arguments and choose alike, the stable K too."""
    how: dict[str, Any] = {**K_STAR, "stability": 0.9, "resamples": RESAMPLES}
    assert select(IMPORTANCE, **how).support == select_support(IMPORTANCE, **how)
    assert select(IMPORTANCE, **how) == modelkin.select(IMPORTANCE, **how)


def test_resamples_alone_measure() -> None:
    """Without a target the result has the stability, and K stays the same."""
    selection = select(IMPORTANCE, **K_STAR, resamples=RESAMPLES)
    assert (3, None) == (selection.support.k, selection.met)
    assert pytest.approx(2 / 3) == selection.stability


@pytest.mark.parametrize("how", [{"k": 3}, {"fraction": 0.3}])
def test_a_k_that_was_asked_for_is_kept(how: dict[str, Any]) -> None:
    """With k or fraction the stability is checked at that K alone."""
    with pytest.warns(UnstableSupportWarning, match="K stays 3"):
        selection = select(IMPORTANCE, **how, stability=0.9, resamples=RESAMPLES)
    assert (3, False) == (selection.support.k, selection.met)


def test_there_may_be_nothing_to_add() -> None:
    """Where all positive entries are in the support already no larger K is tried."""
    sparse = floats(3, 2, 0, 0)
    with pytest.warns(UnstableSupportWarning, match=r"overlap by 0\.5000 at K = 2, which"):
        select(
            sparse, coverage=1.0, k_max=1.0, stability=1.0, resamples=[sparse, sparse[[0, 2, 1, 3]]]
        )


def test_selection_without_resamples() -> None:
    """Coverage is exact for every way to choose K; stability is unknown."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for how in ({"k": 3}, {"fraction": 0.3}, K_STAR):
            selection = select(IMPORTANCE, **how)
            assert (24 / 40, None, None) == (
                selection.coverage,
                selection.stability,
                selection.met,
            )


@pytest.mark.slow
@given(
    st.lists(st.floats(0, 2.0**100, width=32), min_size=1, max_size=40).filter(any),
    st.integers(1, 40),
)
def test_coverage_told_is_coverage_of_the_support(values: list[float], k: int) -> None:
    """The coverage that select reads off histograms is that of the indices themselves."""
    importance = floats(*values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        selection = select(importance, k=min(k, len(values)))
    assert coverage_of(importance, selection.support) == selection.coverage


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"stability": 0.9}, InvalidParameter, "needs resamples.*fisher_resamples"),
        ({"stability": 0.0, "resamples": RESAMPLES}, InvalidParameter, r"in \(0, 1\]"),
        ({"stability": 1.1, "resamples": RESAMPLES}, InvalidParameter, r"in \(0, 1\]"),
        ({"resamples": RESAMPLES[:1]}, InvalidParameter, "two or more, not 1"),
        ({"resamples": []}, InvalidParameter, "two or more, not 0"),
        ({"resamples": [IMPORTANCE, floats(1)]}, SpaceMismatch, r"resamples\[1\] is of 1"),
        (
            {"resamples": [IMPORTANCE, -IMPORTANCE]},
            InvalidImportance,
            r"resamples\[1\]: importance\[0\]",
        ),
        ({"resamples": [0 * IMPORTANCE, IMPORTANCE]}, InvalidImportance, r"resamples\[0\]: all 10"),
    ],
)
def test_resamples_that_cannot_be(how: Any, error: type[Exception], message: str) -> None:
    """Missing, single, foreign and impossible resamples are refused, naming which."""
    with pytest.raises(error, match=message):
        select(IMPORTANCE, k=3, **how)
