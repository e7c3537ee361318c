"""Bit planes: what the bits of the values say, by other means."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from modelkin.core.candidates import best
from modelkin.core.kernels import fast, fast_minhash, fast_search, reference
from modelkin.core.planes import plane_matches, plane_matches_at, planes


def drawn(n: int, h: int, dtype: Any = np.uint32) -> npt.NDArray[Any]:
    """Values of which about a third agree with the first row's."""
    rng = np.random.default_rng(h)
    values = rng.integers(0, np.iinfo(dtype).max, (n, h), dtype=dtype, endpoint=True)
    return np.where(rng.random((n, h)) < 0.3, values[0], values)


def equal_bits(values: npt.NDArray[Any], first: int, bits: int) -> list[int]:
    """How many values of each row equal the first row's in these bits."""
    cut = (values >> values.dtype.type(first)) & values.dtype.type(2**bits - 1)
    return (cut == cut[0]).sum(axis=1).tolist()


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("h", [1, 63, 64, 65, 256, 300])
@pytest.mark.parametrize(("first", "bits"), [(0, 1), (0, 4), (4, 4), (0, 8), (3, 5), (28, 4)])
def test_matches_are_those_of_the_bits(
    each_kernels: ModuleType, dtype: Any, h: int, first: int, bits: int
) -> None:
    """For any width and any bits the planes count what comparing those bits counts: what pads a
    row counts for nothing.
    """
    values = drawn(9, h, dtype)
    made = planes(values, bits, first)
    matches = plane_matches(made, made[0], h)
    assert (9, bits, -(-h // 64)) == made.shape
    assert (np.int16, equal_bits(values, first, bits)) == (matches.dtype, matches.tolist())


def test_the_layout_is_golden(each_kernels: ModuleType) -> None:
    """Bit j of a plane's word is value j's: these words are constants, as rows on disk are."""
    values = np.array([[0b01, 0b10, 0b11, 0b00] * 17], np.uint32)
    expected = [[[0x5555555555555555, 0b0101], [0x6666666666666666, 0b0110]]]
    assert expected == planes(values, 2).tolist()


@pytest.mark.parametrize("h", [256, 100])
def test_parts_count_as_one(each_kernels: ModuleType, h: int) -> None:
    """Four low and four high bits kept apart count, for any rows, what eight bits count."""
    values, at = drawn(20, h), np.array([3, 19, 0, 3])
    low, high, all_ = planes(values, 4), planes(values, 4, 4), planes(values, 8)
    expected = plane_matches(all_, all_[0], h)[at]
    matches = plane_matches_at(at, h, (low, low[0]), (high, high[0]))
    assert (np.int16, expected.tolist()) == (matches.dtype, matches.tolist())


def test_the_widest_signatures(each_kernels: ModuleType) -> None:
    """All 4,096 values of the largest signature can match, or none."""
    values = np.array([[0] * 4096, [15] * 4096], np.uint32)
    made = planes(values, 4)
    assert [4096, 0] == plane_matches(made, made[0], 4096).tolist()


def test_many_rows() -> None:
    """More rows than any block holds, and none, match alike in both kernels."""
    made = planes(drawn(9000, 256), 4)
    expected = reference.plane_matches(made, made[0], 256)
    assert expected.tolist() == fast.plane_matches(made, made[0], 256).tolist()
    assert [] == plane_matches(made[:0], made[0], 256).tolist()


def test_both_modules_offer_the_same() -> None:
    """The two modules of kernels have the same functions under the same names."""
    assert sorted(reference.__all__) == sorted(fast.__all__)
    assert all(callable(getattr(m, name)) for m in (fast, reference) for name in fast.__all__)


def test_warm_leaves_nothing_of_retrieval_to_compile() -> None:
    """After warm, production arrays meet loops only that are compiled for them."""
    fast.warm()
    modules = (fast_minhash, fast_search)
    loops = [x for m in modules for x in vars(m).values() if hasattr(x, "signatures")]
    before = [len(loop.signatures) for loop in loops]
    for values in (drawn(3, 256), drawn(3, 256, np.uint64)):
        made = planes(values, 4)
        plane_matches_at(best(plane_matches(made, made[0], 256), 256, 2), 256, (made, made[0]))
        fast.band_keys(values, 2, 4)
        fast.difference(values[0], values[1])
        fast.members(values[0], values[1])
    fast.fss32(np.arange(9, dtype=np.uint32), 4, 1)
    fast.and_count_rows(made[0], made[0, 0], np.arange(2))
    assert before == [len(loop.signatures) for loop in loops]
