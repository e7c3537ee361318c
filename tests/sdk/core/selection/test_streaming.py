"""Selection from chunks, against the selection of their concatenation."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modelkin.core.selection.selection import (
    SelectionRule,
    SmallSupportWarning,
    select_support,
)
from modelkin.core.selection.streaming import Chunks, Floats, locate, select_from_chunks
from modelkin.errors import InvalidImportance
from tests.sdk.core.selection.exact import coverage_of

TIED = st.sampled_from([0.0, -0.0, 1e-45, 3e-45, 1.1754944e-38, 0.5, 1.0, 1.0000001, 3.4e38])
ANY = st.floats(0, width=32, allow_nan=False, allow_infinity=False)
importances = hnp.arrays(np.float32, st.integers(1, 80), elements=TIED | ANY).filter(np.any)
cuts = st.lists(st.integers(0, 80), max_size=6)
shares = st.floats(0.01, 1.0)
ways: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(dict, k=st.integers(1, 80)),
    st.builds(dict, fraction=shares),
    st.builds(dict, coverage=shares, k_max=st.just(1.0) | shares),
)


def passes(values: Floats, cuts: list[int]) -> Chunks:
    """The values cut into chunks that share one buffer, as a reader of files has it."""
    bounds = [0, *sorted(min(cut, values.size) for cut in cuts), values.size]

    def chunks() -> Iterator[Floats]:
        buffer = np.empty(values.size, np.float32)
        for begin, end in pairwise(bounds):
            buffer[: end - begin] = values[begin:end]
            yield buffer[: end - begin]

    return chunks


@pytest.mark.slow
@given(values=importances, cuts=cuts, way=ways)
def test_chunks_select_what_the_whole_selects(
    each_kernels: ModuleType, values: Floats, cuts: list[int], way: dict[str, Any]
) -> None:
    """However it is cut, the support is that of select_support, bit for bit."""
    way["k"] = min(way["k"], values.size) if "k" in way else None
    rule = SelectionRule.of(values.size, **way)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSupportWarning)
        support = select_from_chunks(passes(values, cuts), values.size, rule)
        assert select_support(values, **way) == support


@pytest.mark.slow
@given(values=importances, cuts=cuts, way=ways)
def test_the_coverage_told_is_that_of_the_support(
    each_kernels: ModuleType, values: Floats, cuts: list[int], way: dict[str, Any]
) -> None:
    """A selection knows, before any index is made, the share of the mass that it will hold."""
    way["k"] = min(way["k"], values.size) if "k" in way else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSupportWarning)
        rule = SelectionRule.of(values.size, **way)
        streamed = locate(passes(values, cuts), values.size, rule).coverage
        assert coverage_of(values, select_support(values, **way)) == streamed


def test_upper_halves_alone_need_no_second_look(each_kernels: ModuleType) -> None:
    """Where every float is a bfloat16, locating takes one pass."""
    values = (np.arange(1, 2000, dtype=np.uint32) << 16).view(np.float32)
    begun = []

    def chunks() -> Iterator[Floats]:
        begun.append(1)
        yield values

    locate(chunks, values.size)
    assert 1 == len(begun)


def test_fewer_positive_entries_than_asked_for_are_a_warning() -> None:
    """Zeros never enter a support; a warning says so if more entries were requested."""
    values = np.array([0, 1, 0, 2], np.float32)
    with pytest.warns(SmallSupportWarning, match="only 2 of 4 entries are positive"):
        support = select_from_chunks(passes(values, [2]), 4, SelectionRule.of(4, k=3))
    assert [1, 3] == support.indices.tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, -1e-45])
def test_what_is_no_importance_is_refused_with_its_place(bad: float) -> None:
    """NaN, infinity and negatives, the least denormal too, are named by their index."""
    values = np.ones(9, np.float32)
    values[6] = bad
    with pytest.raises(InvalidImportance, match=r"importance\[6\] = "):
        select_from_chunks(passes(values, [2, 5]), 9)


def test_zeros_alone_are_refused() -> None:
    """An importance without a positive entry has no support."""
    with pytest.raises(InvalidImportance, match="all 5 entries of the importance are zero"):
        select_from_chunks(passes(np.zeros(5, np.float32), [2]), 5)


def test_chunks_of_another_total_are_refused() -> None:
    """M is the caller's word, and the chunks must keep it."""
    with pytest.raises(InvalidImportance, match="hold 5 entries together, not 6"):
        select_from_chunks(passes(np.ones(5, np.float32), [2]), 6)


def test_chunks_of_another_type_are_refused() -> None:
    """A chunk of float64 would be misread, and is an error."""
    with pytest.raises(InvalidImportance, match="float64"):
        select_from_chunks(lambda: [np.ones(5)], 5)  # type: ignore[list-item]


@pytest.mark.parametrize("changed_at", [2, 3])
def test_an_importance_that_changes_between_passes_is_refused(changed_at: int) -> None:
    """A file replaced while it is read never yields a support of neither content."""
    values = np.linspace(1, 2, 50, dtype=np.float32)
    begun = 0

    def chunks() -> Iterator[Floats]:
        nonlocal begun
        begun += 1
        yield values if begun < changed_at else np.full(50, 9, np.float32)

    with pytest.raises(InvalidImportance, match="changed while it was being read"):
        select_from_chunks(chunks, 50, SelectionRule.of(50, k=7))
