"""Splitting: disjoint parts that add up, the same for all who share a key."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import modelkin
from modelkin import Blinding, Layout, Support
from modelkin.core.splitting import Splitting, merged_signature
from modelkin.errors import InvalidParameter, InvalidSignature, SpaceMismatch
from tests.sdk.core.ordered import ranked

KEY = "c0ffee00" * 8
M = 10_000


def some(seed: int, k: int = 2_000, m: int = M) -> Support:
    return Support.from_indices(np.sort(np.random.default_rng(seed).choice(m, k, False)), m)


@given(st.integers(2, 64), st.integers(0, 99))
def test_parts_are_disjoint_and_whole(parts: int, seed: int) -> None:
    """Each index is in one part, and all parts together are the support."""
    split = Splitting(KEY, M, parts).split(some(seed))
    assert parts == len(split)
    together = np.concatenate([part.indices for part in split])
    assert np.array_equal(np.sort(together), some(seed).indices)


def test_overlaps_of_parts_add_up() -> None:
    """Two supports share as many indices as their parts share together."""
    splitting, a, b = Splitting(KEY, M, 3), some(1), some(2)
    parts = zip(splitting.split(a), splitting.split(b), strict=True)
    shared = sum(np.intersect1d(x.indices, y.indices).size for x, y in parts)
    assert np.intersect1d(a.indices, b.indices).size == shared


@pytest.mark.parametrize("m", [10_000, 2**32 + 5, 2**63 - 1])
def test_parts_are_of_equal_size_on_average(m: int) -> None:
    """Indices fall on parts as dice do: each has its share within five standard deviations."""
    indices = np.unique(np.random.default_rng(0).integers(0, m, 8_000, dtype=np.uint64))
    sizes = [part.k for part in Splitting(KEY, m, 8).split(Support(indices, m))]
    k = sum(sizes)
    assert max(abs(size - k / 8) for size in sizes) < 5 * (k / 8 * 7 / 8) ** 0.5


def test_a_part_says_little_of_where_it_was_cut() -> None:
    """Which part an index is in does not follow from its place: neighbours part as others do."""
    every = Support.from_indices(np.arange(M), M)
    owner = np.empty(M, int)
    for part, own in enumerate(Splitting(KEY, M, 2).split(every)):
        owner[own.indices] = part
    assert 0.45 < (owner[1:] == owner[:-1]).mean() < 0.55


def test_another_key_splits_otherwise() -> None:
    """Without the key a part is not known; checks and contents of keys differ, too."""
    mine, other = Splitting(KEY, M, 2), Splitting("5a" * 32, M, 2)
    assert mine.split(some(1)) != other.split(some(1))
    assert mine.check == Splitting(KEY, M, 2).check
    assert len({mine.check, other.check, Splitting(KEY, M, 3).check}) == 3
    assert mine.content(some(1)) != other.content(some(1))
    assert KEY not in mine.check + mine.content(some(1))
    assert some(1).digest not in mine.content(some(1))


def test_parts_of_signatures_merge_to_the_whole() -> None:
    """The least value of the parts' signatures is that of the support."""
    parts = [part.signature() for part in Splitting(KEY, M, 4).split(some(3))]
    assert some(3).signature() == merged_signature(parts)
    with pytest.raises(InvalidSignature, match="differ in scheme"):
        merged_signature([parts[0], some(3).signature(seed=9)])


def test_tensors_are_put_in_the_space_s_order_first() -> None:
    """A support whose tensors come in another order has the same parts."""
    layout = Layout.of([("a", (60, 100)), ("b", (4_000,))])
    turned = Layout.of([("b", (4_000,)), ("a", (60, 100))])
    values = np.random.default_rng(4).random(M, dtype=np.float32)
    here = modelkin.select_support(values, k=500, layout=layout)
    there = modelkin.select_support(np.r_[values[6_000:], values[:6_000]], k=500, layout=turned)
    splitting = Splitting(KEY, layout, 2)
    pairs = zip(splitting.split(here), splitting.split(there), strict=True)
    assert all(np.array_equal(a.indices, b.indices) for a, b in pairs)


def test_what_cannot_be_split_is_refused() -> None:
    """Too few indices, another M, one part alone, and a key that is not one."""
    with pytest.raises(InvalidParameter, match="3 indices leaves one of 8 parts empty"):
        Splitting(KEY, M, 8).split(some(0, 3))
    with pytest.raises(SpaceMismatch, match="10000 parameters, the space of 90"):
        Splitting(KEY, 90, 2).split(some(0))
    for parts in (1, 65):
        with pytest.raises(InvalidParameter, match=f"2 to 64 parts, not {parts}"):
            Splitting(KEY, M, parts)
    with pytest.raises(InvalidParameter, match="hexadecimal"):
        Splitting("a password", M, 2)
    assert Blinding.new_key() != KEY


def test_ordered_supports_are_refused() -> None:
    """Octaves of a part are not those of its ranks; without its order a support is split."""
    ordered = ranked(range(0, 2000, 2), M)
    with pytest.raises(InvalidParameter, match="ordered, and the octaves in one part are not"):
        Splitting(KEY, M, 2).split(ordered)
    assert ordered.k == sum(part.k for part in Splitting(KEY, M, 2).split(ordered.unordered()))
