"""Ordered supports, from selection to similarity, beside the whole order in plain numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modelkin import select_support
from modelkin.core.similarity.ordered import ordered_similarities
from tests.support.orders.reference import important_first, octave_weights, ordered_cosine

TIED = st.sampled_from([1e-45, 1.1754944e-38, 0.5, 1.0, 1.0000001, 3.4e38])
ANY = st.floats(2.0**-149, 2.0**127, width=32)
importances = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(1, 60)), elements=TIED | ANY
)


@pytest.mark.slow
@given(values=importances, data=st.data())
def test_they_are_those_of_the_whole_order(
    values: npt.NDArray[np.float32], data: st.DataObject
) -> None:
    """Weights of indices are equal bit for bit, and similarities but for rounding."""
    m = values.shape[1]
    k = data.draw(st.integers(1, m))
    supports = [select_support(row, k=k, ordered=True) for row in values]
    orders = important_first(values, supports)
    for support, order in zip(supports, orders, strict=True):
        weights = np.zeros(m)
        weights[order] = octave_weights(k)
        assert support.octaves is not None
        own = 2.0 ** (-support.octaves.astype(np.float64) / 2)
        assert weights[support.indices].tolist() == own.tolist()
    found = np.stack([ordered_similarities(support, supports) for support in supports])
    assert ordered_cosine(orders, orders, m) == pytest.approx(found, abs=1e-12)
