"""The indices common to most supports, compared with a counter of every index."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin import Support
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.common_indices import common_indices
from modelkin.errors import InvalidParameter, SpaceMismatch


def packed(indices: set[int], m: int) -> PackedSupport:
    return PackedSupport.pack(Support.from_indices(sorted(indices), m))


def counted(held: list[set[int]], at_least: int) -> list[int]:
    counts = Counter(index for indices in held for index in indices)
    return sorted(index for index, count in counts.items() if count >= at_least)


@pytest.mark.slow
@given(data=st.data())
def test_common_indices_are_those_of_a_counter(data: st.DataObject) -> None:
    """Of bitmaps, lists and both, whatever the stretches and however far the indices lie apart."""
    m = data.draw(st.sampled_from([1, 63, 64, 65, 200, 1000, 2**32, 2**40]))
    low = st.integers(0, min(m, 100) - 1)
    index = low | st.integers(0, m - 1)
    held = data.draw(st.lists(st.sets(index, min_size=1, max_size=80), min_size=1, max_size=9))
    at_least, stretch = (
        data.draw(st.integers(1, 10)),
        data.draw(st.sampled_from([64, 128, 1 << 22])),
    )
    found = common_indices([packed(each, m) for each in held], at_least, stretch=stretch)
    assert counted(held, at_least) == found.tolist()
    assert (np.uint32 if m <= 2**32 else np.uint64) == found.dtype


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(5000,), (20,), (5000, 20)])
def test_many_supports_are_counted_exactly(sizes: tuple[int, ...]) -> None:
    """Counts that take nine bits, and lists of the same space beside bitmaps, are those of a
    table of all supports.
    """
    m, n, rng = 10_000, 300, np.random.default_rng(3)
    table = np.zeros((n, m), np.bool_)
    for row in range(n):
        crowd = rng.choice(m // 10, sizes[row % len(sizes)] // 10, replace=False)
        table[row, crowd] = True
        table[row, rng.choice(m, sizes[row % len(sizes)] // 2, replace=False)] = True
    supports = [packed(set(np.flatnonzero(row).tolist()), m) for row in table]
    for at_least in (1, 2, 29, 150, 255, 256, 300, 301):
        expected = np.flatnonzero(table.sum(axis=0) >= at_least)
        assert np.array_equal(expected, common_indices(supports, at_least, stretch=4096))


def test_progress_reaches_the_end() -> None:
    """It is reported after every stretch, in ascending order, and finally for the whole range."""
    reports: list[tuple[int, int]] = []
    supports = [packed(set(range(0, 1000, 2)), 1000)]
    common_indices(supports, 1, lambda done, m: reports.append((done, m)), stretch=256)
    assert [(256, 1000), (512, 1000), (768, 1000), (1000, 1000)] == reports


def test_what_cannot_be_counted_is_refused() -> None:
    """No support, supports of two spaces, and a bound that everything meets are errors."""
    with pytest.raises(InvalidParameter, match="at least one support"):
        common_indices([], 1)
    with pytest.raises(InvalidParameter, match="at_least"):
        common_indices([packed({1}, 10)], 0)
    with pytest.raises(SpaceMismatch):
        common_indices([packed({1}, 10), packed({1}, 11)], 1)
