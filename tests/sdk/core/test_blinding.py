"""Blinding: a bijection for any M, the same in every kernel, that changes no overlap."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import modelkin
from modelkin import Blinding, Layout, Support, ordered_similarity
from modelkin.core.importance import Importance, Origin
from modelkin.core.kernels import fast, reference
from modelkin.errors import InvalidParameter, SpaceMismatch
from tests.sdk.core.ordered import ordered_supports, ranked

KEY = "c0ffee00" * 8
LAYOUT = Layout.of([("a", (30, 10)), ("b", (50,))])
SMALL_SIZES = (1, 2, 3, 4, 5, 97, 511, 512, 513, 1000, 65_535, 65_536, 65_537, 10**7)
LARGE_SIZES = (2**31 - 1, 2**31, 2**31 + 11, 2**32 - 1, 2**32, 2**32 + 1, 2**48 + 5, 2**63 - 1)
SIZES = (*SMALL_SIZES, *LARGE_SIZES)
COUNTS = (1, 2, 511, 512, 513, 1023, 1024, 1025, 1537)
"""Of indices: odd ones too, and those about the blocks of 512 of the compiled loop."""


def some(m: int, seed: int = 0) -> Support:
    """A support of up to 2,000 indices, or of all where M is small."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, m, 2000, dtype=np.uint64)
    return Support(np.arange(m) if m <= 1000 else np.unique(drawn), m)


@pytest.mark.parametrize("m", SIZES)
def test_blinding_is_a_bijection_for_any_size(m: int) -> None:
    """Distinct indices stay distinct and below M, and unblinding restores each."""
    blinding, support = Blinding(KEY, m), some(m)
    blinded = blinding.blind(support)
    again = Support(blinded.indices, m)  # sorted, distinct and in range, or it would raise
    assert (support.k, support) == (again.k, blinding.unblind(blinded))
    assert m <= 1000 or support != again


@given(m=st.integers(1, 300), key=st.binary(min_size=32, max_size=32))
def test_all_indices_of_a_small_space_are_permuted(m: int, key: bytes) -> None:
    """Unsorted, the whole of a small space comes back as a permutation of itself, which inverts."""
    blinding, every = Blinding(key, m), np.arange(m, dtype=np.uint32)
    tables = blinding.round_tables()
    moved = reference.permute(every, m, blinding.radices, tables)
    assert np.array_equal(every, np.sort(moved))
    assert np.array_equal(every, reference.permute(moved, m, blinding.radices, tables, True))


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("m", SIZES)
def test_kernels_agree(m: int, inverse: bool) -> None:
    """The compiled loop moves each index as numpy does, across the seams of its blocks."""
    blinding, indices = Blinding(KEY, m), some(m, 1).indices
    for count in {min(n, indices.size) for n in (*COUNTS, indices.size)}:
        assert_kernels_agree(blinding, indices[:count], inverse)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("m", SIZES)
def test_kernels_agree_where_digits_carry(m: int, inverse: bool) -> None:
    """About the multiples of the last radix, where a quotient may be one off, and at both ends."""
    blinding = Blinding(KEY, m)
    radix = blinding.radices[-1]
    multiples = [radix * (m // radix * part // 300) for part in range(301)]
    near = {each + off for each in multiples for off in (-1, 0, 1)} | {m - 1}
    indices = np.array(sorted(each for each in near if 0 <= each < m), some(m).indices.dtype)
    assert_kernels_agree(blinding, indices, inverse)


def assert_kernels_agree(blinding: Blinding, indices: npt.NDArray[Any], inverse: bool) -> None:
    m, radices, tables = blinding.num_parameters, blinding.radices, blinding.round_tables()
    expected = reference.permute(indices, m, radices, tables, inverse)
    actual = fast.permute(indices, m, radices, tables, inverse)
    assert expected.dtype == actual.dtype
    assert np.array_equal(expected, actual)


@given(
    a=st.sets(st.integers(0, 349), min_size=1),
    b=st.sets(st.integers(0, 349), min_size=1),
    key=st.binary(min_size=32, max_size=32),
)
def test_overlaps_are_exactly_unchanged(a: set[int], b: set[int], key: bytes) -> None:
    """Similarity of any two supports is that of the same two, blinded."""
    blinding = Blinding(key, 350)
    plain = [Support(sorted(each), 350) for each in (a, b)]
    blinded = [blinding.blind(each) for each in plain]
    assert modelkin.similarity(*plain) == modelkin.similarity(*blinded)


@pytest.mark.slow
@given(
    family=st.lists(ordered_supports(st.just(350)), min_size=2, max_size=2),
    key=st.binary(min_size=32, max_size=32),
)
def test_ordered_similarities_are_exactly_unchanged(family: list[Support], key: bytes) -> None:
    """Octaves move with their indices, to the last bit of a similarity, and back."""
    for layout in (350, LAYOUT, Layout(LAYOUT.tensors[::-1])):
        blinding = Blinding(key, layout)
        a, b = (blinding.blind(support) for support in family)
        assert ordered_similarity(*family) == ordered_similarity(a, b)
        for support, blinded in zip(family, (a, b), strict=True):
            again = Support(blinded.indices, 350, octaves=blinded.octaves)
            assert (blinded, support) == (again, blinding.unblind(blinded))
            assert blinding.blind(support.unordered()) == blinded.unordered()


def test_blinded_octaves_are_of_the_same_parameters() -> None:
    """Where one index goes, its octave goes, too."""
    blinding, support = Blinding(KEY, 1000), ranked([7, 500, 3, 999, 4], 1000)
    expected = ranked(blinding.places(np.array([7, 500, 3, 999, 4], np.uint32)).tolist(), 1000)
    assert expected == blinding.blind(support)


def test_signatures_estimate_as_well() -> None:
    """Signatures of blinded supports differ from the plain ones, and estimate the same overlap."""
    order = np.random.default_rng(3).permutation(100_000)
    plain = [Support(np.sort(order[at : at + 4500]), 100_000) for at in (0, 1500)]
    blinded = [Blinding(KEY, 100_000).blind(each) for each in plain]
    truth = modelkin.similarity(*plain)
    for pair in (plain, blinded):
        first, second = (each.signature(1024) for each in pair)
        assert abs(first.similarity(second) - truth) < 4 * first.standard_error(second)
    assert not np.array_equal(plain[0].signature().values, blinded[0].signature().values)


def test_supports_of_two_keys_do_not_compare() -> None:
    """Nor a blinded one with one that is known to be plain: an error, not a number by chance."""
    support = Support(np.arange(0, 350, 3), 350, origin=Origin(Importance.of("fisher"), LAYOUT))
    mine = Blinding(KEY, LAYOUT).blind(support)
    for other in (support, Blinding("ab" * 32, LAYOUT).blind(support)):
        with pytest.raises(SpaceMismatch, match="blind both with one key"):
            modelkin.similarity(mine, other)
        with pytest.raises(SpaceMismatch, match="blind both with one key"):
            mine.signature().similarity(other.signature())


def test_what_is_stated_of_a_blinded_support_moves_no_index() -> None:
    """The origin of the blinded one with the indices of the plain one, for a report of its K."""
    blinding = Blinding(KEY, LAYOUT)
    support = Support(np.arange(0, 350, 3), 350, origin=Origin(Importance.of("fisher"), LAYOUT))
    stated = blinding.stated(support)
    assert blinding.blind(support).origin == stated.origin
    assert support == stated


def test_moves_never_change() -> None:
    """A key of a release moves indices as every release does: golden values."""
    digests = {}
    for m in (1000, 10**7, 2**40):
        blinded = Blinding(KEY, m).blind(some(m, 5)).indices.astype("<u8")
        digests[m] = hashlib.sha256(blinded.tobytes()).hexdigest()[:16]
    assert GOLDEN == digests
    assert GOLDEN_CHECK == Blinding(KEY, LAYOUT).check


GOLDEN = {1000: "702746827e553786", 10**7: "d694e78b23a5f2b8", 2**40: "9251c17bd26629f7"}
GOLDEN_CHECK = "shake256:c785b6c89b724b5aec1209a0f32197e2"


@pytest.mark.slow
def test_no_index_has_a_preferred_place() -> None:
    """Over 4,000 keys an index of 50 lands everywhere alike (chi-square below its 99.99% point),
    and two neighbours land in all orders."""
    places: npt.NDArray[Any] = np.array(
        [_places(bytes([i % 256, i // 256]) * 16, 50, (7, 8)) for i in range(4000)]
    )
    for counts in (np.bincount(places[:, 0], minlength=50), np.bincount(places[:, 1])):
        assert ((counts - 80) ** 2 / 80).sum() < 98
    assert 0.47 < (places[:, 0] < places[:, 1]).mean() < 0.53


def _places(key: bytes, m: int, indices: tuple[int, ...]) -> npt.NDArray[Any]:
    blinding = Blinding(key, m)
    asked = np.array(indices, np.uint32)
    return reference.permute(asked, m, blinding.radices, blinding.round_tables())


def test_what_changes_the_check_value() -> None:
    """Another key, M or layout is another permutation, and its check value says so."""
    renamed = Layout.of([("a", (30, 10)), ("c", (50,))])
    others = [Blinding("ab" * 32, LAYOUT), Blinding(KEY, 350), Blinding(KEY, renamed)]
    mine = Blinding(KEY, LAYOUT)
    assert 4 == len({mine, *others})
    assert mine == Blinding(bytes.fromhex(KEY), LAYOUT)
    support = Support(np.arange(0, 350, 3), 350)
    blinded = {each.blind(support).digest for each in (mine, *others)}
    assert 4 == len(blinded)


def test_the_origin_of_a_blinded_support() -> None:
    """It keeps the kind of importance, states the check value, and has no layout any more."""
    blinding = Blinding(KEY, LAYOUT)
    support = Support(np.arange(40), 350, origin=Origin(Importance.of("fisher"), LAYOUT))
    blinded = blinding.blind(support)
    assert Origin(Importance.of("fisher"), None, blinding.check) == blinded.origin
    assert blinded.origin == Origin.from_text(blinded.origin.to_text())
    assert support.origin == blinding.unblind(blinded).origin


def test_tensors_in_another_order_are_put_in_order_first() -> None:
    """A client whose model lists its tensors otherwise gets the same blinded support."""
    other = Layout.of([("b", (50,)), ("a", (30, 10))])
    blinding = Blinding(KEY, LAYOUT)
    support = Support(np.arange(20, 340, 7), 350, origin=Origin(None, LAYOUT))
    assert blinding.blind(support) == blinding.blind(support.reordered(other))
    theirs = Blinding(KEY, other)
    assert blinding == theirs
    assert blinding.blind(support) == theirs.blind(support)
    restored = theirs.unblind(blinding.blind(support))
    assert support.reordered(other) == restored
    assert restored.origin is not None
    assert other == restored.origin.layout
    unknown = Support(support.reordered(other).indices, 350)
    assert blinding.blind(support) == theirs.blind(unknown)
    foreign = Origin(None, Layout.of([("a", (30, 10)), ("x", (50,))]))
    with pytest.raises(SpaceMismatch, match="'x'"):
        blinding.blind(Support([1], 350, origin=foreign))


def test_refusals() -> None:
    """What cannot be blinded is named, and no message shows a key."""
    blinding = Blinding(KEY, LAYOUT)
    blinded = blinding.blind(Support([1, 5], 350))
    with pytest.raises(InvalidParameter, match="blinded already"):
        blinding.blind(blinded)
    with pytest.raises(SpaceMismatch, match="351 parameters, the blinding of 350"):
        blinding.blind(Support([1], 351))
    with pytest.raises(SpaceMismatch, match="was blinded under"):
        Blinding("ab" * 32, LAYOUT).unblind(blinded)
    for wrong in ("ab" * 31, "zz" * 32, b"short", 7, None):
        with pytest.raises(InvalidParameter, match="key") as refused:
            Blinding(wrong, 10)  # type: ignore[arg-type]
        assert "zz" not in str(refused.value)
    with pytest.raises(InvalidParameter, match="num_parameters"):
        Blinding(KEY, 0)


def test_a_blinding_shows_no_key() -> None:
    """Neither its text nor a pickle holds the key, and new keys differ."""
    blinding = Blinding(KEY, LAYOUT)
    assert KEY[:8] not in repr(blinding)
    with pytest.raises(TypeError, match="holds a key"):
        pickle.dumps(blinding)
    assert 2 == len({Blinding.new_key(), Blinding.new_key()})
