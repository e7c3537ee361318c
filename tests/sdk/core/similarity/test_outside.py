"""Comparisons outside gaps, against sets of Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import Layout, Support
from modelkin.core import gaps as gaps_module
from modelkin.core.gaps import Gaps
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.chance import expected_similarities, tensor_sizes
from modelkin.core.similarity.edges import exact_similarity
from modelkin.core.similarity.matrix import matrix
from modelkin.core.similarity.outside import counts_outside, overlap_outside
from modelkin.errors import InvalidParameter

M = 700
LAYOUT = Layout.of([("a", (100,)), ("none", (0, 3)), ("b", (28, 10)), ("c", (320,))])
RANGES = st.lists(st.tuples(st.integers(0, M), st.integers(0, M)).map(sorted), max_size=5)
SPARSE = st.sets(st.integers(0, M - 1), min_size=1, max_size=15)
DENSE = st.sets(st.integers(0, M - 1), min_size=200, max_size=500)


def _left_out(ranges: list[list[int]]) -> set[int]:
    return {i for begin, end in ranges for i in range(begin, end)}


@pytest.mark.slow
@settings(max_examples=60)
@given(SPARSE | DENSE, SPARSE | DENSE, RANGES, RANGES, st.integers(1, 9))
def test_overlaps_outside_gaps_are_those_of_sets(
    one: set[int], other: set[int], some: list[list[int]], more: list[list[int]], block: int
) -> None:
    """Lists, bitmaps and one of each share outside any gaps what sets without these share."""
    out = _left_out(some) | _left_out(more)
    left = [one - out, other - out]
    gaps = Gaps.of(some) | Gaps.of(more)
    forms = [PackedSupport.pack(Support.from_indices(sorted(s), M)) for s in (one, other)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaps_module, "BLOCK_WORDS", block)
        found = overlap_outside(forms[0], forms[1], gaps, LAYOUT)
        counts = [counts_outside(form, gaps, LAYOUT).tolist() for form in forms]
    begins = [0, *LAYOUT.ends.tolist()]
    spans = [set(range(a, b)) for a, b in itertools.pairwise(begins)]
    assert len(out) == gaps.size
    assert (len(left[0] & left[1]), len(left[0]), len(left[1])) == (found.shared, found.a, found.b)
    assert [[len(each & span) for span in spans] for each in left] == counts
    if any(left):
        sizes = np.array([len(span - out) for span in spans], np.float64)
        rows = np.array(counts)
        assert float(expected_similarities(rows[0], rows[1:], sizes)[0]) == found.expected
    similarity = np.array([[1.0, found.similarity], [found.similarity, 1.0]])
    assert similarity.tolist() == matrix(forms, gaps=gaps).tolist()
    pair = exact_similarity(dict(enumerate(forms)), np.array([[0, 1]]), gaps=gaps)
    assert [found.similarity] == pair.tolist()


def test_gaps_are_merged_and_named_by_tensors() -> None:
    """Ranges in any order become few, and those of named tensors are where the tensors lie."""
    assert ((0, 5), (7, 9)) == Gaps.of([(7, 9), (3, 5), (0, 4), (6, 6)]).ranges
    assert Gaps(((0, 100), (380, 700))) == LAYOUT.gaps(["c", "none", "a"])
    assert [100, 0, 5, 0] == Gaps.of([(0, 105)]).sizes_in_tensors(LAYOUT.ends).tolist()
    assert not Gaps.of([(4, 4)])
    with pytest.raises(InvalidParameter, match="not a range"):
        Gaps.of([(4, 3)])


def test_gaps_reach_to_the_last_index() -> None:
    """At M = 2^32 the end of a gap is no index of uint32, and counts are right nevertheless."""
    m = 1 << 32
    support = PackedSupport.pack(Support.from_indices([1, m - 2, m - 1], m))
    assert 2 == support.count_in(Gaps(((m - 2, m),)))
    found = overlap_outside(support, support, Gaps(((m - 1, m),)))
    assert (2, 2, 2, 1.0) == (found.shared, found.a, found.b, found.similarity)


def test_nothing_outside_gaps_is_no_similarity() -> None:
    """Supports that lie in the gaps share nothing, and have no kappa."""
    support = Support.from_indices([1, 2], M)
    found = overlap_outside(support, support, Gaps(((0, M),)), LAYOUT)
    assert (0.0, None) == (found.similarity, found.kappa)
    assert tensor_sizes(LAYOUT).sum() == M
