"""A selection in one pass equals the one in memory, whatever the order of the parts."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin import select_support
from modelkin.core.selection import largest
from modelkin.core.selection.largest import LargestEntries
from modelkin.errors import InvalidImportance, InvalidParameter

Floats = npt.NDArray[np.float32]


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for few entries, so that small ones are dropped again and again."""
    monkeypatch.setattr(largest, "_LEAST_ROOM", 7)
    monkeypatch.setattr(largest, "_LEAST_PART", 3)


def parts_of(importance: Floats, seed: int) -> Iterable[tuple[int, Floats]]:
    """The importance in parts of many sizes, in any order."""
    generator = np.random.default_rng(seed)
    cuts = np.sort(generator.integers(0, importance.size + 1, 9))
    ends = [0, *cuts.tolist(), importance.size]
    for at in generator.permutation(len(ends) - 1):
        yield ends[at], importance[ends[at] : ends[at + 1]]


@given(
    size=st.integers(1, 400),
    values=st.sampled_from([2, 5, 1000]),
    most=st.integers(1, 400),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_is_what_select_support_takes(size: int, values: int, most: int, seed: int) -> None:
    """With many ties and zeros, for every K up to the most, also after the state was stored."""
    generator = np.random.default_rng(seed)
    importance: Floats = generator.integers(0, values, size).astype(np.float32) / np.float32(3)
    most = min(most, size)
    entries = LargestEntries(size, most)
    for begin, part in parts_of(importance, seed):
        entries.add(begin, part)
        file = io.BytesIO()
        np.savez(file, **cast(Any, entries.state()))
        file.seek(0)
        entries = LargestEntries(size, most)
        entries.restore(dict(np.load(file)))
    if not importance.any():
        with pytest.raises(InvalidImportance, match=r"entries of the importance are zero"):
            entries.support()
        return
    for k in {1, (most + 1) // 2, most}:
        positive = min(k, int(np.count_nonzero(importance)))
        assert select_support(importance, k=positive) == entries.support(k)


def test_wide_index_spaces_keep_their_indices() -> None:
    """Beyond 2^32 parameters an index has 64 bits."""
    entries = LargestEntries(1 << 40, 3)
    entries.add((1 << 39) + 5, np.array([1, 3, 2, 0, 3], np.float32))
    entries.add(7, np.array([3, 1], np.float32))
    support = entries.support()
    assert [7, (1 << 39) + 6, (1 << 39) + 9] == support.indices.tolist()
    assert 1 << 40 == support.num_parameters


def test_more_than_the_most_cannot_be_asked_for() -> None:
    """The entries were dropped, so the error says how many there may be."""
    entries = LargestEntries(10, 2)
    entries.add(0, np.ones(10, np.float32))
    with pytest.raises(InvalidParameter, match="1 to 2, not 3"):
        entries.support(3)


@pytest.mark.parametrize(("num_parameters", "most"), [(1 << 26, 36), (1 << 33, 56)])
def test_the_memory_of_two_selections(
    num_parameters: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync has two at once, and its memory is planned by these bytes an index (docs/capacity)."""
    monkeypatch.undo()  # as much room as there is
    k = 1 << 21
    part = np.random.default_rng(0).random(k // 4, np.float32)
    tracemalloc.start()
    try:
        both = [LargestEntries(num_parameters, k) for _ in range(2)]
        for i in range(24):
            for each in both:
                each.add(i * part.size, part)
        for each in both:
            assert k == each.support().k
        assert tracemalloc.get_traced_memory()[1] <= most * k
    finally:
        tracemalloc.stop()
