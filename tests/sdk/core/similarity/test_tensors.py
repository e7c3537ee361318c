"""Overlaps by tensor over pairs: shared indices, their S and kappa, and pairs of strangers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import Layout, Support
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity import overlap, tensors
from modelkin.core.similarity.chance import tensor_sizes
from tests.support.models.planted_tensors import CONSTANTS, LAYOUT, strangers

M = 700
INDICES = st.sets(st.integers(0, M - 1), min_size=1, max_size=40)
DENSE = st.sets(st.integers(0, M - 1), min_size=200, max_size=500)


def agreement(supports: Sequence[Support]) -> tensors.TensorAgreement:
    """The agreement of all pairs."""
    pairs = list(itertools.combinations(supports, 2))
    a, b = (np.stack([LAYOUT.counts(pair[i].indices) for pair in pairs]) for i in (0, 1))
    shared = np.stack([LAYOUT.counts(overlap.intersection(*pair)) for pair in pairs])
    return tensors.agreement(tensor_sizes(LAYOUT), a, b, shared)


@pytest.mark.slow
@settings(max_examples=40)
@given(INDICES | DENSE, INDICES | DENSE, st.sets(st.integers(0, M), max_size=6), st.integers(1, 9))
def test_shared_indices_are_counted_tensor_by_tensor(
    one: set[int], other: set[int], cuts: set[int], block: int
) -> None:
    """Of lists, bitmaps and one of each, in blocks of any size, the counts are those of sets."""
    edges = [0, *sorted(cuts), M]
    layout = Layout.of((f"t{i}", [b - a]) for i, (a, b) in enumerate(itertools.pairwise(edges)))
    expected = [len(one & other & set(range(a, b))) for a, b in itertools.pairwise(edges)]
    packed = [PackedSupport.pack(Support.from_indices(sorted(s), M)) for s in (one, other)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "_BLOCK_WORDS", block)
        assert expected == tensors.shared_by_tensor(packed[0], packed[1], layout).tolist()


def test_what_is_held_whole_says_nothing() -> None:
    """In a tensor that every support holds whole S is 1 by chance alone: no kappa."""
    found = agreement(strangers(np.random.default_rng(4), 4, ()))
    [norm] = [place for place, tensor in enumerate(LAYOUT.tensors) if tensor.name == "norm"]
    assert 1.0 == found.similarity[norm]
    assert np.isnan(found.kappa[norm])
    assert 0 == found.strangers[norm]
    assert abs(found.kappa[3]) < 0.05


def test_strangers_are_counted_in_each_tensor() -> None:
    """A pair that agrees in two constants is at chance elsewhere, as each other tensor sees it."""
    models = strangers(np.random.default_rng(3), 2, CONSTANTS)
    found = agreement(models)
    assert [1] * 3 == found.strangers[[1, 3, 5]].tolist()
    assert [1.0, 1.0] == found.similarity[[0, 2]].tolist()
