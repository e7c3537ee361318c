"""The best of counts: a stable sort, without sorting."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modelkin.core.kernels import fast, reference
from modelkin.core.similarity.top_k import top_k


@given(
    counts=hnp.arrays(
        st.sampled_from([np.int16, np.int32]), st.integers(0, 40), elements=st.integers(-2, 9)
    ),
    count=st.integers(0, 45),
)
def test_best_is_a_stable_sort(
    each_kernels: ModuleType, counts: npt.NDArray[Any], count: int
) -> None:
    """The best are the first of a stable sort by count, without rows that are not eligible."""
    order = [row for row in np.argsort(-counts, kind="stable").tolist() if counts[row] >= 0]
    found = top_k(counts, 9, count)
    assert (np.dtype(np.int64), sorted(order[:count])) == (found.dtype, found.tolist())


def test_best_of_many() -> None:
    """Both kernels pick the same 20,000 of 300,000, ties and all."""
    counts = np.random.default_rng(0).binomial(256, 0.2, 300_000).astype(np.int16)
    expected = reference.best(counts, 256, 20_000)
    assert 20_000 == expected.size
    assert expected.tolist() == fast.best(counts, 256, 20_000).tolist()
