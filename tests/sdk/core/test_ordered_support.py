"""Ordered supports: octaves are those of ranks, and part of the value."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.gaps import Gaps
from modelkin.core.importance import Importance, Origin
from modelkin.core.layout import Layout
from modelkin.core.octaves import last_octave, octave_sizes
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, InvalidSupport
from tests.sdk.core.ordered import octave, ordered_supports, ranked

ORDERED = Support([2, 5, 7, 8], 10, octaves=[1, 0, 2, 1])
PLAIN = Support([2, 5, 7, 8], 10)


@given(k=st.integers(1, 5000))
def test_octaves_count_ranks(k: int) -> None:
    """Octave l has the ranks from 2^l to 2^(l+1) - 1, and the last one what is left."""
    expected = np.bincount([octave(rank) for rank in range(1, k + 1)])
    assert expected.tolist() == octave_sizes(k).tolist()
    assert octave(k) == last_octave(k)


@pytest.mark.parametrize("k", [2**52 + 1, 2**53 - 1, 2**53, 2**62, 2**63 - 1])
def test_the_last_octave_is_exact(k: int) -> None:
    """No float rounds the octave of a large rank up."""
    last = last_octave(k)
    assert 2**last <= k < 2 ** (last + 1)


@pytest.mark.parametrize(
    "octaves",
    [(1, 0, 2, 1), np.array([1, 0, 2, 1], ">i8"), np.array([1, 9, 0, 9, 2, 9, 1], np.uint64)[::2],
     torch.tensor([1, 0, 2, 1])],
)  # fmt: skip
def test_any_integers_are_octaves(octaves: Any) -> None:
    """Tuples, arrays of any integer type and tensors give one and the same ordered support."""
    support = Support.from_indices([2, 5, 7, 8], 10, octaves=octaves)
    assert ORDERED == support
    assert support.octaves is not None
    assert ([1, 0, 2, 1], np.dtype(np.uint8)) == (support.octaves.tolist(), support.octaves.dtype)
    assert (True, False) == (support.ordered, PLAIN.ordered)
    assert PLAIN.octaves is None


@pytest.mark.parametrize(
    ("octaves", "message"),
    [
        ([], r"each of the 4 indices has one octave, and octaves have shape \(0,\)"),
        ([0, 1, 1], r"one octave, and octaves have shape \(3,\)"),
        ([0, 1, 1, 2, 2], r"one octave, and octaves have shape \(5,\)"),
        ([[0, 1, 1, 2]], r"one octave, and octaves have shape \(1, 4\)"),
        (0, r"one octave, and octaves have shape \(\)"),
        ([0, 1, 1, 3], r"octaves\[3\] = 3 is out of range: the ranks of 4 .* octaves 0 to 2"),
        ([0, -1, 1, 2], r"octaves\[1\] = -1 is out of range"),
        ([0, 256, 257, 2], r"octaves\[1\] = 256 is out of range"),
        ([0, 1, 2, 2], r"1 indices have octave 1, and 2 of 4 ranks do: .* floor\(log2\(r\)\)"),
        ([1, 1, 1, 2], "0 indices have octave 0, and 1 of 4 ranks do"),
        ([0, 1, 1, 1], "3 indices have octave 1, and 2 of 4 ranks do"),
        ([0.0, 1.0, 1.0, 2.0], "octaves must be integers, these are float64"),
        ([False, True, True, True], "octaves must be integers, these are bool"),
        ("0112", "octaves must be integers"),
        ([[0], [1, 1, 2]], "octaves are not an array of integers"),
        ([0, 1, 1, 2**70], "in octaves does not fit"),
    ],
)
def test_what_no_ranks_have_is_refused(octaves: Any, message: str) -> None:
    """Octaves that are not those of the ranks 1 to K are refused, and the error says why."""
    with pytest.raises(InvalidSupport, match=message) as refused:
        Support([2, 5, 7, 8], 10, octaves=octaves)
    assert "octaves" == refused.value.field


def test_the_counts_of_many_octaves_are_checked() -> None:
    """Octaves are counted in blocks, and each block counts."""
    k = 200_000
    octaves = np.repeat(np.arange(last_octave(k) + 1), octave_sizes(k))
    assert Support(range(k), k, octaves=octaves).ordered
    octaves[[0, -1]] = octaves[[1, -1]]
    with pytest.raises(InvalidSupport, match="0 indices have octave 0"):
        Support(range(k), k, octaves=octaves)


def test_octaves_cannot_be_changed() -> None:
    """Neither through the support nor through the array it was made from."""
    given_array = np.array([1, 0, 2, 1], np.uint8)
    support = Support([2, 5, 7, 8], 10, octaves=given_array)
    given_array[0] = 9
    assert support.octaves is not None
    with pytest.raises(ValueError, match="read-only"):
        support.octaves[0] = 0
    assert ORDERED == support


def test_octaves_are_part_of_the_value() -> None:
    """Another order is another support with another digest, and so is the plain one."""
    other = Support([2, 5, 7, 8], 10, octaves=[0, 1, 2, 1])
    assert 3 == len({ORDERED, other, PLAIN, ORDERED.unordered(), copy.copy(ORDERED)})
    assert 3 == len({each.digest for each in (ORDERED, other, PLAIN)})
    assert PLAIN != ORDERED
    assert ORDERED != other
    assert Support([2, 5, 7, 9], 10, octaves=[1, 0, 2, 1]) != ORDERED
    assert Support([2, 5, 7, 8], 11, octaves=[1, 0, 2, 1]) != ORDERED


def test_the_plain_support_shares_the_indices() -> None:
    """``unordered`` copies nothing, keeps the origin, and a plain support is its own."""
    origin = Origin(Importance.of("fisher"), Layout.of([("a", (10,))]))
    plain = ORDERED.with_origin(origin).unordered()
    assert PLAIN == plain
    assert PLAIN.digest == plain.digest
    assert (None, origin) == (plain.octaves, plain.origin)
    assert np.shares_memory(plain.indices, ORDERED.indices)
    assert PLAIN.unordered() is PLAIN


def test_copies_and_pickles_are_ordered() -> None:
    """Pickles, copies and ``with_origin`` keep octaves, read-only."""
    origin = Origin(Importance.of("fisher"))
    stated = ORDERED.with_origin(origin)
    copies = pickle.loads(pickle.dumps(stated)), copy.deepcopy(stated), copy.copy(stated)
    for again in copies:
        assert (ORDERED, origin) == (again, again.origin)
        assert again.octaves is not None
        assert not again.octaves.flags.writeable
    assert stated.with_origin(None) == ORDERED


def test_a_pickle_from_before_octaves_is_plain() -> None:
    """Pickles of supports from before ordered ones load."""
    make, (*parts, octaves, gaps) = PLAIN.__reduce__()
    assert (None, Gaps()) == (octaves, gaps)
    assert PLAIN == make(*parts)


def test_repr_says_that_it_is_ordered() -> None:
    """A support in a session says that it has octaves."""
    assert "<Support, ordered, of 4 of 10 parameters (40.00%)>" == repr(ORDERED)


@given(ordered_supports(st.sampled_from([90, 1000, 2**33])))
def test_signatures_and_sketches_are_of_the_indices_alone(support: Support) -> None:
    """What samples a set has no sketch of its order: it is that of the plain support."""
    plain = support.unordered()
    assert plain.signature(8) == support.signature(8)
    assert plain.sketch(64) == support.sketch(64)


def test_octaves_move_with_their_indices() -> None:
    """In another order of tensors each parameter keeps its octave."""
    layout = Layout.of([("a", (4,)), ("none", (0,)), ("b", (5,)), ("c", (3,))])
    target = Layout.of([("c", (3,)), ("b", (5,)), ("a", (4,)), ("none", (0,))])
    support = ranked([10, 1, 8, 3, 4], 12).with_origin(Origin(layout=layout))
    assert ranked([1, 9, 7, 11, 3], 12) == support.reordered(target)
    assert support == support.reordered(target).reordered(layout)
    assert support == support.reordered(layout)


def test_formats_without_octaves_are_refused() -> None:
    """A Roaring bitmap would lose the order: the error says what keeps it, and what drops it."""
    message = r"is ordered, and a Roaring bitmap has no place .* native format, or .*unordered\(\)"
    with pytest.raises(InvalidParameter, match=message):
        ORDERED.to_roaring()
    assert PLAIN == Support.from_roaring(ORDERED.unordered().to_roaring(), 10)
