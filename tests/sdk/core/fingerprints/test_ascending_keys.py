"""Ascending keys: what is distinct and present, as by numpy's general functions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.fingerprints.lines import distinct, present

KEYS = st.lists(st.integers(0, 9) | st.just(2**64 - 1), max_size=12).map(
    lambda keys: np.sort(np.array(keys, np.uint64))
)


@given(KEYS, KEYS)
def test_they_are_those_of_numpy(keys: np.typing.NDArray[np.uint64], others: object) -> None:
    """Also of no keys, and beyond the last one."""
    assert np.array_equal(np.unique(keys), distinct(keys))
    assert isinstance(others, np.ndarray)
    assert np.array_equal(np.isin(keys, others), present(keys, others))
