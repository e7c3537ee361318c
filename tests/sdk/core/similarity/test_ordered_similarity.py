"""The ordered similarity: the cosine by definition, on all kernels and in every form."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import modelkin
from modelkin.core.importance import Importance, Origin
from modelkin.core.kernels.fast import octaves as fast_octaves
from modelkin.core.kernels.reference import octaves as reference_octaves
from modelkin.core.octaves import octaves_of_bits
from modelkin.core.similarity.ordered import ordered_similarities, ordered_similarity
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, SpaceMismatch
from tests.sdk.core.ordered import cosine, ordered_supports, ranked

SPACES = (1, 63, 700, 100_000, 2**32 + 5)
ORDERED = ranked([2, 5, 7, 8], 10)
PLAIN = ORDERED.unordered()


@st.composite
def families(draw: st.DrawFn) -> list[Support]:
    """Up to five ordered supports of one space, dense or sparse."""
    m = draw(st.sampled_from(SPACES))
    return draw(st.lists(ordered_supports(st.just(m)), min_size=1, max_size=5))


def falling(support: Support) -> list[int]:
    """The indices by octave, in any order within each."""
    assert support.octaves is not None
    return [int(index) for index in support.indices[np.argsort(support.octaves, kind="stable")]]


@pytest.mark.slow
@given(family=families())
def test_it_is_the_cosine_of_weighted_indices(
    each_kernels: ModuleType, family: list[Support]
) -> None:
    """For any two supports it is the definition's, symmetric, and 1 with itself."""
    for a, b in itertools.product(family, repeat=2):
        found = ordered_similarity(a, b)
        assert cosine(falling(a), falling(b)) == pytest.approx(found, abs=1e-12)
        assert found == ordered_similarity(b, a)
        assert 0 <= found <= 1
        assert (a != b) or found == 1


@pytest.mark.slow
@given(family=families())
def test_one_against_many(each_kernels: ModuleType, family: list[Support]) -> None:
    """One against many has the numbers of pairs, bit for bit."""
    for a in family:
        pairs = [ordered_similarity(a, b) for b in family]
        assert pairs == ordered_similarities(a, family).tolist()


def scored(m: int, k: int, seed: int) -> Support:
    """K of M indices of a random importance."""
    rng = np.random.default_rng(seed)
    indices = np.unique(rng.integers(0, m, k, dtype=np.uint64))
    bits = rng.random(indices.size, dtype=np.float32).view(np.uint32)
    return Support(indices, m, octaves=octaves_of_bits(bits))


@pytest.mark.slow
@pytest.mark.parametrize(("m", "k"), [(1000, 400), (400_000, 150_000), (10**8, 150_000)])
def test_it_is_the_cosine_at_scale(each_kernels: ModuleType, m: int, k: int) -> None:
    """Over many blocks, merged and probed, it is the definition's."""
    a, b = scored(m, k, 1), scored(m, k, 2)
    assert cosine(falling(a), falling(b)) == pytest.approx(ordered_similarity(a, b), abs=1e-12)


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize(("m", "k"), [(1, 1), (65, 65), (700_000, 90_000)])
def test_kernels_agree(m: int, k: int, dtype: Any) -> None:
    """Merge and probe of both modules count alike, by the sum of both octaves."""
    a, b = scored(m, k, 3), scored(m, k, 4)
    assert a.octaves is not None
    assert b.octaves is not None
    first, second = a.indices.astype(dtype), b.indices.astype(dtype)
    table = np.full(m, reference_octaves.ABSENT, np.uint8)
    table[first] = a.octaves
    expected = np.zeros(reference_octaves.SUMS, np.int64)
    theirs = dict(zip(second.tolist(), b.octaves.tolist(), strict=True))
    for index, octave in zip(first.tolist(), a.octaves.tolist(), strict=True):
        if index in theirs:
            expected[octave + theirs[index]] += 1
    for module in (reference_octaves, fast_octaves):
        merged = module.shared_octaves(first, a.octaves, second, b.octaves)
        probed = module.probe_octaves(table, second, b.octaves)
        assert expected.tolist() == merged.tolist() == probed.tolist()
        assert (np.int64, np.int64) == (merged.dtype, probed.dtype)


def test_the_highest_octaves_are_counted() -> None:
    """Two octaves of the largest K sum to 124: nothing wraps."""
    index, highest = np.zeros(1, np.uint32), np.full(1, 62, np.uint8)
    for module in (reference_octaves, fast_octaves):
        for counts in (
            module.shared_octaves(index, highest, index, highest),
            module.probe_octaves(highest, index, highest),
        ):
            assert [124] == np.flatnonzero(counts).tolist()
        absent = np.full(1, reference_octaves.ABSENT, np.uint8)
        assert not module.probe_octaves(absent, index, highest).any()


def test_the_similarity_is_public() -> None:
    """``modelkin.ordered_similarity`` compares what ``select_support(ordered=True)`` makes."""
    a, b = (
        modelkin.select_support(np.array(values, np.float32), k=3, ordered=True)
        for values in ([4, 3, 2, 1, 0], [0, 3, 2, 1, 4])
    )
    # Squared lengths are 1 + 2/2; index 1 has weights 2^-1/2 in both, and index 2 too.
    assert 0.5 == pytest.approx(modelkin.ordered_similarity(a, b))


@pytest.mark.parametrize(("a", "b"), [(PLAIN, ORDERED), (ORDERED, PLAIN), (PLAIN, PLAIN)])
def test_plain_supports_are_refused(a: Support, b: Support) -> None:
    """A support without octaves has no ordered similarity, and the error says how to make one."""
    message = r"this one has no octaves: make it with select_support\(..., ordered=True\)"
    with pytest.raises(InvalidParameter, match=message):
        ordered_similarity(a, b)
    with pytest.raises(InvalidParameter, match=message):
        ordered_similarities(a, [b])


def test_different_spaces_are_never_compared() -> None:
    """Supports of different M or of different kinds of importance are an error, not a zero."""
    other = ranked([2, 5, 7, 8], 11)
    with pytest.raises(SpaceMismatch, match="of 10 and 11 parameters"):
        ordered_similarity(ORDERED, other)
    with pytest.raises(SpaceMismatch, match="of 10 and 11 parameters"):
        ordered_similarities(ORDERED, [ORDERED, other])
    with pytest.raises(SpaceMismatch, match="fisher"):
        ordered_similarity(
            ORDERED.with_origin(Origin(Importance.of("fisher"))),
            ORDERED.with_origin(Origin(Importance.of("weight"))),
        )


def test_no_supports() -> None:
    """A query against none has no similarities, and has octaves all the same."""
    assert (0,) == ordered_similarities(ORDERED, []).shape
    with pytest.raises(InvalidParameter, match="no octaves"):
        ordered_similarities(PLAIN, [])


def test_others_are_compared_one_at_a_time() -> None:
    """The many may come from a disk: the next one is read after the one before is compared."""
    read = []

    def others() -> Iterator[Support]:
        for other in (ORDERED, PLAIN, ORDERED):
            read.append(other)
            yield other

    with pytest.raises(InvalidParameter, match="no octaves"):
        ordered_similarities(ORDERED, others())
    assert [ORDERED, PLAIN] == read
