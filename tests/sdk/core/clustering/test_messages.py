"""The messages of affinity propagation: the same numbers from both kernels."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.kernels import fast, reference


@given(
    n=st.integers(2, 40),
    kinds=st.sampled_from([1, 3, 1000]),
    damping=st.sampled_from([0.5, 0.9, 0.99]),
    rounds=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_kernels_pass_the_same_messages(
    n: int, kinds: int, damping: float, rounds: int, seed: int
) -> None:
    """Round by round each number is the same, also where similarities tie."""
    rng = np.random.default_rng(seed)
    s = rng.integers(0, kinds, (n, n)) / kinds
    s[np.arange(n), np.arange(n)] = rng.uniform(-2.0, 1.0)
    messages = [[np.zeros((n, n)), np.zeros((n, n)), np.zeros(n)] for _ in range(2)]
    for _ in range(rounds):
        for kernels, (a, r, support) in zip((reference, fast), messages, strict=True):
            kernels.pass_messages(s, a, r, support, damping)
        for expected, found in zip(*messages, strict=True):
            assert np.array_equal(expected, found)
