"""``select_support(..., ordered=True)``: octaves by falling importance, ties to the lower index."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import modelkin
from modelkin.core.layout import Layout
from modelkin.core.selection.selection import SmallSupportWarning, select, select_support
from modelkin.core.support import Support
from modelkin.torch.selection import DeviceEntries
from tests.sdk.core.ordered import ranked

Floats = npt.NDArray[np.float32]

TIED = st.sampled_from([0.0, -0.0, 1e-45, 3e-45, 1.1754944e-38, 0.5, 1.0, 1.0000001, 3.4e38])
ANY = st.floats(0, width=32, allow_nan=False, allow_infinity=False)
importances = hnp.arrays(np.float32, st.integers(1, 80), elements=TIED | ANY).filter(np.any)
LAYOUT = Layout.of([("first", (2, 3)), ("bias", (1,)), ("last", (5,))])
VALUES = np.array([1, 5, 5, 2, 5, 0, 9, 100, 100, 300, 100, 200], np.float32)


def chosen(values: Any, **how: Any) -> Support:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSupportWarning)
        return select_support(values, ordered=True, **how)


def falling(values: Floats) -> list[int]:
    """Positive entries, largest first, ties by index."""
    order = sorted(range(values.size), key=lambda i: (-float(values[i]), i))
    return [i for i in order if values[i] > 0]


@pytest.mark.slow
@given(values=importances, data=st.data())
def test_octaves_are_those_of_ranks(
    each_kernels: ModuleType, values: Floats, data: st.DataObject
) -> None:
    """By k, ranks are places among the positive entries sorted by value, then by index."""
    k = data.draw(st.integers(1, values.size))
    assert ranked(falling(values)[:k], values.size) == chosen(values, k=k)


@pytest.mark.slow
@given(values=importances, coverage=st.floats(0.01, 1.0))
def test_the_indices_are_those_of_a_plain_selection(values: Floats, coverage: float) -> None:
    """However K is chosen, the order comes beside the same indices, in both functions."""
    support = chosen(values, coverage=coverage, k_max=1.0)
    assert select_support(values, coverage=coverage, k_max=1.0) == support.unordered()
    assert support == select(values, coverage=coverage, k_max=1.0, ordered=True).support
    assert ranked(falling(values)[: support.k], values.size) == support


def test_ties_go_to_the_lower_index(each_kernels: ModuleType) -> None:
    """Of nothing but ties the first index is the most important one."""
    support = chosen(np.ones(100, np.float32), k=7)
    assert support.octaves is not None
    assert [0, 1, 1, 2, 2, 2, 2] == support.octaves.tolist()


@pytest.mark.parametrize(
    ("budgets", "order"),
    [
        ({"first": 2, "last": 3}, [9, 11, 7, 1, 2]),
        ({"first": 3, "bias": 1}, [6, 1, 2, 4]),
        (0.5, [9, 11, 6, 1, 2, 4]),
    ],
)
def test_ranks_are_among_all_tensors(budgets: Any, order: list[int]) -> None:
    """With budgets tensors give their own largest entries, and ranks compare those of all."""
    expected = ranked(order, 12)
    assert expected == select_support(VALUES, layout=LAYOUT, budgets=budgets, ordered=True)
    device = DeviceEntries.of(torch.from_numpy(VALUES))
    assert expected == select_support(device, layout=LAYOUT, budgets=budgets, ordered=True)


def test_order_is_that_of_the_target_layout() -> None:
    """Ties go to the lower index of the layout that is selected in."""
    target = Layout.of([("last", (5,)), ("bias", (1,)), ("first", (2, 3))])
    support = select_support(VALUES, k=6, layout=LAYOUT, order=target, ordered=True)
    assert ranked([2, 4, 0, 1, 3, 5], 12) == support
    without = select_support(VALUES, k=3, layout=LAYOUT, exclude=["last"], ordered=True)
    assert ranked([6, 1, 2], 7) == without


@pytest.mark.slow
@given(values=importances, data=st.data())
def test_tensors_and_other_floats_have_the_same_octaves(
    values: Floats, data: st.DataObject
) -> None:
    """torch's own operations, and float64 that rounds to it, give the support of float32."""
    k = data.draw(st.integers(1, values.size))
    expected = chosen(values, k=k)
    assert expected == chosen(torch.from_numpy(values), k=k)
    assert expected == chosen(DeviceEntries.of(torch.from_numpy(values)), k=k)
    assert expected == chosen(values.astype(np.float64), k=k)
    assert expected == chosen(DeviceEntries.of(torch.from_numpy(values).double()), k=k)


def test_half_precisions_are_ordered() -> None:
    """bfloat16 has many ties, which go to the lower index."""
    values = torch.rand(500, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    expected = chosen(values.float().numpy(), k=100)
    assert expected == chosen(values, k=100)
    assert expected == chosen(DeviceEntries.of(values), k=100)


def test_a_signature_has_no_order() -> None:
    """A signature is of the set alone, also where an ordered support is asked for."""
    expected = modelkin.select_signature(VALUES, k=4, num_perm=16)
    assert expected == modelkin.select_signature(VALUES, k=4, num_perm=16, ordered=True)


def test_a_stable_selection_is_ordered() -> None:
    """Resamples choose K, and ranks are those of the importance itself."""
    resamples = [VALUES, VALUES[::-1].copy()]
    support = select_support(VALUES, k=3, resamples=resamples, ordered=True)
    assert ranked([9, 11, 7], 12) == support
