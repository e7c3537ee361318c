"""Sealed slots: a sketch in shared memory is accepted only if whole and of the right content."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.kernels import fast, reference

Words = npt.NDArray[np.uint64]
ANY = st.integers(0, 2**64 - 1)
GOLDEN = 0xDF529EB84FEE5F1C


def drawn(w: int, seed: int) -> Words:
    """The words of some sketch."""
    return np.random.default_rng(seed).integers(0, 2**64, w, dtype=np.uint64)


def slot(words: Words, tag: int, members: int, first: int = 64) -> Words:
    """A slot that holds a sketch, whose first part is so many words, as a service writes it."""
    own = int(np.bitwise_count(words[:first]).sum())
    seals = [reference.seal(part, tag, members, own) for part in (words[:first], words)]
    return np.concatenate([np.array([tag, members, own, *seals, 0, 0, 0], np.uint64), words])


def count(
    kernels: ModuleType, one: Words, query: Words, tag: int, part: int = 1
) -> tuple[int, int]:
    """What one slot says of a query."""
    at, tags = np.zeros(1, np.int64), np.array([tag], np.uint64)
    shared, members = kernels.sealed_counts(one[None], query, at, tags, part)[0].tolist()
    return shared, members


@given(tag=ANY, members=ANY, first=ANY, w=st.integers(1, 200), seed=st.integers(0, 99))
def test_seals_agree(tag: int, members: int, first: int, w: int, seed: int) -> None:
    """Both kernels seal any words alike, whatever their number."""
    arguments = drawn(w, seed), tag, members, first
    assert reference.seal(*arguments) == fast.seal(*arguments)


def test_the_seal_is_golden(implementation: ModuleType) -> None:
    """These are constants: with others a file of an older version would be read wrongly."""
    words = np.arange(100, dtype=np.uint64)
    assert GOLDEN == implementation.seal(words, 7, 100, 30)
    assert 0 != implementation.seal(np.zeros(1024, np.uint64), 0, 0, 0)


@pytest.mark.slow
@given(data=st.data(), w=st.sampled_from([1, 63, 64, 65, 300]), part=st.sampled_from([0, 1]))
def test_kernels_count_alike(data: st.DataObject, w: int, part: int) -> None:
    """Of slots whole, torn, foreign and empty, in any order, both say the same, and what numpy
    counts of the whole ones, in all of them or in their first parts.
    """
    kinds = data.draw(st.lists(st.sampled_from("wtfe"), min_size=1, max_size=6))
    query, slots = drawn(w, 99), np.zeros((len(kinds), w + 8), np.uint64)
    query = query if part else query[:64]
    for row, kind in enumerate(kinds):
        slots[row] = slot(drawn(w, row), 5 + (kind == "f"), 40 + row)
        if kind == "t":
            torn = 8 + data.draw(st.integers(0, query.size - 1))
            slots[row, torn] ^= np.uint64(data.draw(st.integers(1, 9)))
        if kind == "e":
            slots[row] = 0
    at = np.array(data.draw(st.lists(st.integers(0, len(kinds) - 1), max_size=9)), np.int64)
    tags = np.full(at.size, 5, np.uint64)
    expected = [
        [
            int(np.bitwise_count(slots[row, 8 : 8 + query.size] & query).sum()),
            40 + row if part else int(slots[row, 2]),
        ]
        if kinds[row] == "w"
        else [-1, -1]
        for row in at.tolist()
    ]
    for kernels in (reference, fast):
        found = kernels.sealed_counts(slots, query, at, tags, part)
        assert ((at.size, 2), np.int64) == (found.shape, found.dtype)
        assert expected == found.tolist()


@pytest.mark.parametrize("w", [5, 1024])
def test_no_mixture_of_two_sketches_is_believed(implementation: ModuleType, w: int) -> None:
    """A write torn at any word is detected, whichever of the two sketches comes first.

    This holds under the header of either. If the first part is whole, the first part is accepted.
    """
    old, new = slot(drawn(w, 1), 5, 9, 256), slot(drawn(w, 2), 5, 7, 256)
    query = drawn(w, 1)
    assert (9, 7) == (count(implementation, old, query, 5)[1], count(fast, new, query, 5)[1])
    for at in range(9, w + 8, max(1, w // 50)):
        for a, b in ((old, new), (new, old)):
            for header in (old, new):
                torn = np.concatenate([header[:8], a[8:at], b[at:]])
                assert (-1, -1) == count(implementation, torn, query, 5)
                first = count(implementation, torn, query[:256], 5, 0)
                is_whole = header is a and at >= min(w, 256) + 8
                assert is_whole == (first != (-1, -1))


def test_moved_blocks_are_not_believed(implementation: ModuleType) -> None:
    """The same bytes in another place, as a disk may bring them back, are another sketch."""
    whole = slot(drawn(1024, 1), 5, 9)
    swapped = np.concatenate([whole[:8], whole[520:], whole[8:520]])
    assert (-1, -1) == count(implementation, swapped, drawn(1024, 1), 5)


@given(position=st.integers(0, 71), bit=st.integers(0, 63))
def test_any_flipped_bit_shows(position: int, bit: int) -> None:
    """A flipped bit in the words, the tag, the members or the seals is always detected."""
    whole = slot(drawn(64, 3), 5, 9, 64)
    whole[position] ^= np.uint64(1) << np.uint64(bit)
    counts = [count(k, whole, drawn(64, 3), 5, part) for k in (reference, fast) for part in (0, 1)]
    if position in {5, 6, 7}:  # these say nothing
        assert (-1, -1) not in counts
    elif position in {3, 4}:  # the seals of the two parts, which here are one and the same
        assert [position == 3, position == 4] * 2 == [found == (-1, -1) for found in counts]
    else:
        assert {(-1, -1)} == set(counts)


@pytest.mark.slow
@given(
    words=st.lists(ANY, min_size=1, max_size=9),
    at=st.lists(st.integers(0, 63), min_size=64, max_size=64),
    dtype=st.sampled_from([np.uint32, np.uint64]),
)
def test_bits_are_gathered_alike(words: list[int], at: list[int], dtype: type) -> None:
    """Bit j of the result is bit ``coordinates[j]`` of the bitmap, in both kernels."""
    bitmap = np.array(words, np.uint64)
    coordinates: npt.NDArray[Any] = np.array([64 * (a % len(words)) + a for a in at], dtype)
    expected = sum(
        ((words[c // 64] >> (c % 64)) & 1) << j for j, c in enumerate(coordinates.tolist())
    )
    assert [expected] == reference.bits_at(bitmap, coordinates).tolist()
    assert [expected] == fast.bits_at(bitmap, coordinates).tolist()
