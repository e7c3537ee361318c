"""Selection by count, fraction and coverage, against exact arithmetic."""

from __future__ import annotations

import tracemalloc
import warnings
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modelkin.core.selection.selection import SmallSupportWarning, select, select_support
from modelkin.errors import InvalidImportance, InvalidParameter
from tests.sdk.core.selection.exact import coverage_of, mass

Floats = npt.NDArray[np.float32]

TIED = st.sampled_from([0.0, -0.0, 1e-45, 3e-45, 1.1754944e-38, 0.5, 1.0, 1.0000001, 3.4e38])
ANY = st.floats(0, width=32, allow_nan=False, allow_infinity=False)
importances = hnp.arrays(np.float32, st.integers(1, 80), elements=TIED | ANY).filter(np.any)

FOUR_FIFTHS: Any = Fraction(4, 5)
NINE_TENTHS: Any = Fraction(9, 10)
"""Exact shares; the signatures say float."""


def ranking(values: Floats) -> list[int]:
    """Positive entries, largest first, ties by index."""
    order = sorted(range(values.size), key=lambda i: (-float(values[i]), i))
    return [i for i in order if values[i] > 0]


def k_star(values: Floats, coverage: Fraction) -> int:
    """Algorithm 1 in rationals."""
    reached = Fraction(0)
    for k, index in enumerate(ranking(values), 1):
        reached += Fraction(float(values[index]))
        if reached >= coverage * mass(values):
            return k
    raise AssertionError


@pytest.mark.slow
@given(values=importances, data=st.data())
def test_top_k_is_the_first_k_of_the_ranking(
    each_kernels: ModuleType, values: Floats, data: st.DataObject
) -> None:
    """By k, the support is the first k of the positive entries sorted by value, then by index."""
    k = data.draw(st.integers(1, values.size))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSupportWarning)
        support = select_support(values, k=k)
    assert sorted(ranking(values)[:k]) == support.indices.tolist()


@pytest.mark.slow
@given(values=importances, coverage=st.fractions(Fraction(1, 1000), 1, max_denominator=1000))
def test_k_star_is_exact(each_kernels: ModuleType, values: Floats, coverage: Any) -> None:
    """By coverage, K is Algorithm 1's in exact rationals, and its coverage reaches the target."""
    selection = select(values, coverage=coverage, k_max=1.0)
    indices = selection.support.indices
    assert sorted(ranking(values)[: k_star(values, coverage)]) == indices.tolist()
    assert coverage_of(values, selection.support) == selection.coverage


@pytest.mark.slow
@given(values=importances, cap=st.integers(1, 80))
def test_the_cap_cuts_the_ranking(each_kernels: ModuleType, values: Floats, cap: int) -> None:
    """A capped coverage is the top k_max of the ranking, also where the cap splits ties."""
    k = min(cap, k_star(values, Fraction(9, 10)))
    support = select_support(values, coverage=NINE_TENTHS, k_max=cap)
    assert sorted(ranking(values)[:k]) == support.indices.tolist()


def test_large_sets_need_exact_sums() -> None:
    """K* of 300,000 entries is that of sums of Python integers, which a float32 sum misses."""
    values = np.random.default_rng(3).random(300_000, dtype=np.float32) ** 4
    order = np.lexsort((np.arange(values.size), -values))
    units = [int(v) for v in values[order].astype(np.float64) * 2.0**149]
    reached = np.cumsum(np.array(units, dtype=object))
    expected = int(np.searchsorted(reached, -(-reached[-1] * 4 // 5))) + 1
    support = select_support(values, coverage=FOUR_FIFTHS, k_max=1.0)
    assert np.array_equal(np.sort(order[:expected]), support.indices)
    rounded = np.cumsum(values[order])
    assert expected != int(np.searchsorted(rounded, rounded[-1] * np.float32(0.8))) + 1


def test_all_entries_equal_go_by_index(each_kernels: ModuleType) -> None:
    """With nothing but ties the support is the first K indices, K the exact share."""
    ones = np.ones(10_000, np.float32)
    assert list(range(123)) == select_support(ones, k=123).indices.tolist()
    assert 8_000 == select_support(ones, coverage=FOUR_FIFTHS, k_max=1.0).k
    assert 8_001 == select_support(ones, coverage=0.8, k_max=1.0).k  # 0.8 as a float is above 4/5
    assert 2_000 == select_support(ones).k


@pytest.mark.parametrize(
    ("fraction", "m", "k"),
    [(0.3, 10, 3), (0.1, 19, 1), (0.001, 10, 1), (1.0, 7, 7), (1, 7, 7), (Fraction(2, 3), 9, 6),
     (Decimal("0.29"), 100, 29), (np.float32(0.5), 5, 2), (0.29, 100, 29)],
)  # fmt: skip
def test_fraction_is_rounded_down_as_written(fraction: Any, m: int, k: int) -> None:
    """floor(fraction * M), at least one, of the decimal as written, not of its binary value."""
    values = np.arange(1, m + 1, dtype=np.float32)
    assert k == select_support(values, fraction=fraction).k
    cap: Any = Decimal(str(fraction)) if m == 10 else k
    assert k == select_support(values, coverage=1, k_max=cap).k


def test_fewer_positive_entries_warn(each_kernels: ModuleType) -> None:
    """Zeros of either sign never enter: the support is smaller, and a warning says how small."""
    values = np.array([0.0, -0.0, 1e-45, 0.0, 2.0], np.float32)
    with pytest.warns(SmallSupportWarning, match="only 2 of 5 entries are positive"):
        assert [2, 4] == select_support(values, k=3).indices.tolist()


def test_a_coverage_of_very_few_entries_warns() -> None:
    """Where fewer than a thousandth of the parameters reach it, a fraction is advised."""
    values = np.full(9_000, 1e-9, np.float32)
    values[:5] = 1.0
    with pytest.warns(SmallSupportWarning, match="5 of 9000 parameters reach the coverage"):
        assert 5 == select_support(values, coverage=0.8).k
    assert 450 == select_support(values, fraction=0.05).k


def test_coverage_of_sparse_importance_does_not_warn() -> None:
    """A coverage selects only as many entries as it needs, so few positive ones are expected."""
    values = np.array([0, 0, 0, 5], np.float32)
    assert [3] == select_support(values, coverage=1.0, k_max=1.0).indices.tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0, -1e-45])
@pytest.mark.parametrize("how", [{"k": 1}, {"coverage": 0.5}])
def test_impossible_entries_are_named(
    each_kernels: ModuleType, value: float, how: dict[str, Any]
) -> None:
    """NaN, infinity and any negative are refused with the first index and how many there are."""
    values = np.array([1, 0, value, -0.0, value], np.float32)
    with pytest.raises(InvalidImportance, match=r"importance\[2\] = .*2 of 5 are not") as caught:
        select_support(values, **how)
    assert "importance" == caught.value.field


@pytest.mark.parametrize(
    ("importance", "message"),
    [
        (np.zeros(4, np.float32), "all 4 entries"),
        (np.array([-0.0]), "all 1 entries"),
        (np.ones((2, 2), np.float32), r"shape \(2, 2\)"),
        (np.array([]), r"shape \(0,\)"),
        (np.array([1, 2]), "holds int64"),
        (np.array([True]), "holds bool"),
        (np.array([1.0, -1e-60]), r"importance\[1\] = -1e-60"),
        (np.array([1.0, 1e300]), r"importance\[1\] = inf"),
        (torch.ones(2, dtype=torch.int32), "holds int32"),
        (torch.ones(2).to_sparse(), "not a plain tensor"),
        (torch.ones(2, device="meta"), "not a plain tensor"),
    ],
)
def test_what_is_no_importance(importance: Any, message: str) -> None:
    """All zeros, no vector, no floats and out of float32's range are refused, saying which."""
    with pytest.raises(InvalidImportance, match=message):
        select_support(importance, k=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 1, "coverage": 0.5}, "one of k, fraction and coverage, not k and coverage"),
        ({"k": 1, "k_max": 2}, "k_max caps a coverage"),
        ({"fraction": 0.1, "k_max": 0.2}, "k_max caps a coverage"),
        ({"k": 0}, "k must be 1 to 3, not 0"),
        ({"k": 4}, "k must be 1 to 3, not 4"),
        ({"k": True}, "k must be 1 to 3, not True"),
        ({"k": 1.0}, "k must be an integer"),
        ({"fraction": 0.0}, r"fraction must be in \(0, 1\]"),
        ({"fraction": 1.1}, r"fraction must be in \(0, 1\]"),
        ({"fraction": float("nan")}, "fraction must be a number"),
        ({"coverage": "0.8"}, "coverage must be a number"),
        ({"coverage": -0.1}, r"coverage must be in \(0, 1\]"),
        ({"k_max": 0}, "k_max must be 1 to M"),
        ({"k_max": 1.5}, r"k_max must be in \(0, 1\]"),
        ({"k_max": float("inf")}, "k_max must be a number"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    """Each wrong way to choose K is refused by name."""
    with pytest.raises(InvalidParameter, match=message):
        select_support(np.ones(3, np.float32), **arguments)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", np.longdouble])
@pytest.mark.parametrize("step", [1, -3])
def test_every_float_array(dtype: Any, step: int) -> None:
    """Every precision, byte order and stride gives the support of the same values."""
    values = np.random.default_rng(0).permutation(600).astype(dtype)[::step]
    expected = np.sort(np.argsort(-values.astype(np.float64))[:50])
    assert expected.tolist() == select_support(values, k=50).indices.tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_select_as_arrays(dtype: torch.dtype) -> None:
    """A tensor of any precision, strided or part of a graph, selects what its values say."""
    values = torch.randperm(400, generator=torch.Generator().manual_seed(1)).to(dtype)[::2]
    expected = select_support(values.double().numpy(), coverage=0.5)
    assert expected == select_support(values.requires_grad_(), coverage=0.5)


def test_an_importance_is_not_changed() -> None:
    """A float32 array is read in place, even a read-only one."""
    values = np.array([3, 0, 1], np.float32)
    values.flags.writeable = False
    assert [0, 2] == select_support(values, k=2).indices.tolist()


@pytest.mark.parametrize("how", [{"k": 800_000}, {"coverage": 0.8, "k_max": 0.1}])
def test_memory_stays_below_a_byte_a_parameter(
    each_kernels: ModuleType, how: dict[str, Any]
) -> None:
    """Selecting a tenth of 8 million, half of them tied, takes no more than 8 MB at its peak."""
    values = np.random.default_rng(0).random(8_000_000, dtype=np.float32).clip(0.5)
    select_support(values[:9], k=1)
    tracemalloc.start()
    assert 800_000 == select_support(values, **how).k
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= values.size


@pytest.mark.parametrize("given", [None, {"weight": 1.0}, object()])
def test_what_is_no_importance_says_how_to_make_one(given: object) -> None:
    """A model, its state, or nothing."""
    with pytest.raises(InvalidImportance, match=f"this is a {type(given).__name__}: make one of"):
        select_support(given)
