"""The best of counts, with their ties: a stable sort, without sorting."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modelkin.core.kernels import fast, reference


@pytest.mark.slow
@given(
    counts=hnp.arrays(np.int16, st.integers(0, 200), elements=st.integers(-2, 9)),
    count=st.integers(0, 205),
)
def test_best_are_the_first_of_a_sort_and_their_ties(
    each_kernels: ModuleType, counts: npt.NDArray[np.int16], count: int
) -> None:
    """All rows whose count is that of the last one taken are taken; none that is negative."""
    ranked = sorted((value for value in counts.tolist() if value >= 0), reverse=True)[:count]
    expected = [row for row, value in enumerate(counts.tolist()) if ranked and value >= ranked[-1]]
    found = each_kernels.best(counts, 9, count)
    assert (np.dtype(np.int64), expected) == (found.dtype, found.tolist())


def test_best_of_many() -> None:
    """Both kernels pick the same of 300,000, of which long stretches have none."""
    for share, count in ((0.2, 20_000), (0.2, 7)):
        counts = np.random.default_rng(0).binomial(256, share, 300_000).astype(np.int16)
        expected = reference.best(counts, 256, count)
        assert count <= expected.size < 2 * count + 1000
        assert expected.tolist() == fast.best(counts, 256, count).tolist()
