"""The fast kernels against the reference, bit for bit, and the choice between them."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modelkin.core.kernels import choice, fast, reference
from modelkin.core.kernels.fast import minhash as fast_minhash
from modelkin.core.kernels.fast import search as fast_search
from modelkin.errors import InvalidParameter, MissingExtra
from tests.sdk.draws import distinct

SPECIAL = np.array(
    [0.0, -0.0, 1e-45, 1e-40, 1.17549435e-38, 1.0, 1.0000001, 2.0, 3.4028235e38], np.float32
)
BLOCK_SIZES = (0, 1, 127, 128, 129, 4095, 4096, 4097, reference.BLOCK - 1, reference.BLOCK + 1)


def same(expected: Any, actual: Any) -> bool:
    return expected.dtype == actual.dtype and np.array_equal(expected, actual)


def floats(size: int, seed: int = 0) -> npt.NDArray[np.uint32]:
    """Bits of non-negative floats with ties, denormals and both zeros among them."""
    rng = np.random.default_rng(seed)
    values = rng.random(size, dtype=np.float32) ** 8
    return np.where(rng.random(size) < 0.3, rng.choice(SPECIAL, size), values).view(np.uint32)


def ascending(size: int, m: int, dtype: Any = np.uint32, seed: int = 0) -> npt.NDArray[Any]:
    rng = np.random.default_rng(seed)
    return distinct(rng.integers(0, m, size, dtype=np.uint64)).astype(dtype)


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


@given(bits=hnp.arrays(np.uint32, st.integers(0, 300)))
def test_histograms_agree_on_any_bits(bits: npt.NDArray[np.uint32]) -> None:
    """Any bits whatever, NaN and negatives too, are counted the same."""
    counts, low = reference.histogram_mass(bits)
    assert same(reference.histogram(bits), fast.histogram(bits))
    assert same(counts, fast.histogram_mass(bits)[0])
    assert same(low, fast.histogram_mass(bits)[1])


@pytest.mark.parametrize("size", BLOCK_SIZES)
def test_histograms_agree_at_block_seams(size: int) -> None:
    """Sizes around every block size give the same three histograms."""
    bits = frozen(floats(size))
    upper = int(bits[size // 2] >> 16) if size else 0
    assert same(reference.histogram(bits), fast.histogram(bits))
    assert same(reference.histogram_mass(bits)[1], fast.histogram_mass(bits)[1])
    assert same(reference.histogram_within(bits, upper), fast.histogram_within(bits, upper))


def test_mass_histogram_flushes_in_time() -> None:
    """More elements of one bin than its packed cell can hold are counted exactly."""
    size = (1 << 24) + 5
    bits = np.full(size, 0x3F80FFFF, np.uint32)
    counts, low = fast.histogram_mass(bits)
    assert (size, size * 0xFFFF) == (counts[0x3F80], low[0x3F80])


@pytest.mark.parametrize("size", BLOCK_SIZES[1:])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_emit_agrees_for_any_number_of_ties(size: int, share: float) -> None:
    """The same indices, ascending, whether none, half or all of the ties are taken."""
    bits = floats(size)
    threshold = int(np.float32(1.0).view(np.uint32))
    signed = bits.view(np.int32)
    ties = int(share * np.count_nonzero(signed == threshold))
    k = int(np.count_nonzero(signed > threshold)) + ties
    expected = reference.emit(bits, threshold, ties, k)
    assert same(expected, fast.emit(bits, threshold, ties, k))


def test_emit_takes_the_first_ties() -> None:
    """With all entries equal, as many as wanted are taken from the left, across blocks."""
    bits = np.full(10_000, SPECIAL[5].view(np.uint32))
    for ties in (1, 4096, 4097, 9_999):
        assert same(np.arange(ties, dtype=np.uint32), fast.emit(bits, int(bits[0]), ties, ties))


def test_minus_zero_is_below_every_threshold() -> None:
    """-0.0, whose bits are large, is never emitted, even above the least positive float."""
    bits = np.array([-0.0, 1e-45, -0.0, 0.0], np.float32).view(np.uint32)
    assert [1] == reference.emit(bits, 1, 4, 1).tolist() == fast.emit(bits, 1, 4, 1).tolist()


@pytest.mark.parametrize("size", [1, 2, 1023, 1025, 2047, 2048, 2049, 70_000])
def test_minhashes_agree(size: int) -> None:
    """Both widths agree on both index types, for sizes around the blocks."""
    rng = np.random.default_rng(size)
    a32, b32 = rng.integers(0, 2**32, (2, 7), dtype=np.uint32)
    a64, b64 = rng.integers(0, 2**64, (2, 7), dtype=np.uint64)
    narrow, wide = ascending(size, 2**32), ascending(size, 2**63, np.uint64)
    assert same(reference.minhash32(narrow, a32, b32), fast.minhash32(narrow, a32, b32))
    for indices in (narrow, wide):
        assert same(reference.minhash64(indices, a64, b64), fast.minhash64(indices, a64, b64))


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize(("m", "size"), [(1, 1), (64, 20), (65, 65), (700_000, 90_000)])
def test_overlap_kernels_count_what_sets_count(dtype: Any, m: int, size: int) -> None:
    """Merge, bitmaps and probes of both modules count the intersection of the two sets."""
    a, b = ascending(size, m, dtype, 1), ascending(size, m, dtype, 2)
    expected = len(set(a.tolist()) & set(b.tolist()))
    for module in (reference, fast):
        words = [module.bitmap(indices, m) for indices in (a, b)]
        assert expected == module.intersect_count(a, b)
        assert expected == module.and_count(*words)
        assert expected == module.probe_count(words[0], b)
    assert same(reference.bitmap(a, m), fast.bitmap(a, m))
    for module in (reference, fast):
        assert same(a, module.set_bits(reference.bitmap(a, m), a.dtype))


@pytest.mark.slow
@settings(max_examples=200)
@given(data=st.data(), longest=st.sampled_from([40, 2000]))
def test_intersection_agrees_for_unequal_lists(data: st.DataObject, longest: int) -> None:
    """A short list against a long one, merged or galloped through, counts the same."""
    long = ascending(longest, 3 * longest, seed=longest)
    members = st.sampled_from(long.tolist()) | st.integers(0, 4 * longest)
    short = np.array(sorted(data.draw(st.sets(members, min_size=1, max_size=9))), np.uint32)
    expected = len(set(short.tolist()) & set(long.tolist()))
    for module, pair in itertools.product((reference, fast), ((short, long), (long, short))):
        assert expected == module.intersect_count(*pair)


def test_tables_agree() -> None:
    """A table of counts is what counting each pair alone gives, for widths around a stretch."""
    rng = np.random.default_rng(0)
    for width in (1, 255, 256, 513):
        rows = rng.integers(0, 2**64, (3, width), dtype=np.uint64)
        columns = rng.integers(0, 2**64, (5, width), dtype=np.uint64)
        expected = reference.and_count_table(rows, columns)
        assert same(expected, fast.and_count_table(rows, columns))


@pytest.mark.parametrize("h", [1, 64, 127, 256, 300, 4096])
def test_match_counts_agree(h: int) -> None:
    """Rows of any width, none of them or many, match alike; more than 255 matches do not wrap."""
    rng = np.random.default_rng(h)
    rows = rng.integers(0, 2, (50, h), dtype=np.uint8)
    rows[7] = rows[3]
    expected = reference.match_counts(rows, rows[3])
    assert h == expected[7]
    assert same(expected, fast.match_counts(rows, rows[3]))
    assert same(expected[:0], fast.match_counts(rows[:0], rows[3]))


@pytest.mark.parametrize("h", [1, 64, 128, 300])
def test_match_counts_of_some_rows_agree(h: int) -> None:
    """Chosen rows, in any order and repeated, match as they do among all; none match nothing."""
    rng = np.random.default_rng(h)
    rows = rng.integers(0, 2, (50, h), dtype=np.uint8)
    for at in (rng.integers(0, 50, 90), np.arange(50)[::-1].copy(), np.empty(0, np.int64)):
        expected = reference.match_counts(rows, rows[3])[at]
        assert same(expected, reference.match_counts_at(rows, rows[3], at))
        assert same(expected, fast.match_counts_at(rows, rows[3], at))


def test_warm_leaves_nothing_to_compile() -> None:
    """After warm, production types meet compiled loops only, writable or not, aligned or not."""
    fast.warm()
    loops = [loop for loop in vars(fast).values() if hasattr(loop, "signatures")]
    before = [len(loop.signatures) for loop in loops]
    odd = np.frombuffer(b"-" + np.arange(99, dtype=np.uint32).tobytes(), np.uint32, offset=1)
    for indices in (ascending(9, 99), frozen(ascending(9, 99)), ascending(9, 99, np.uint64), odd):
        fast.gap_encode(indices[:9], 0)
        fast.intersect_count(indices[:9], indices[:9])
        fast.probe_count(fast.bitmap(indices[:9], 99), indices[:9])
    fast.histogram_mass(odd)
    fast.emit(floats(10), 1, 10, 8)
    assert before == [len(loop.signatures) for loop in loops]


@pytest.mark.parametrize(
    ("wanted", "module"), [("reference", reference), ("fast", fast), ("auto", fast)]
)
def test_choice_by_environment(
    monkeypatch: pytest.MonkeyPatch, wanted: str, module: object
) -> None:
    """MODELKIN_KERNELS names the module; numba's is the automatic one where it is installed."""
    monkeypatch.setenv("MODELKIN_KERNELS", wanted)
    assert module is choice.kernels()


def test_choice_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without numba the reference runs, and asking for fast says what to install."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert reference is choice.kernels()
    choice.kernels.cache_clear()
    monkeypatch.setenv("MODELKIN_KERNELS", "fast")
    with pytest.raises(MissingExtra, match=r"pip install 'modelkin\[fast\]'"):
        choice.kernels()


def test_choice_refuses_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt MODELKIN_KERNELS is an error that names the choices."""
    monkeypatch.setenv("MODELKIN_KERNELS", "quick")
    with pytest.raises(InvalidParameter, match="auto, fast or reference, not 'quick'"):
        choice.kernels()


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
    at = np.arange(2)
    for dtype in (np.uint32, np.uint64):
        values = np.arange(3 * 256, dtype=dtype).reshape(3, 256)
        fast.band_keys(values, 2, 4)
        fast.difference(values[0], values[1])
        fast.members(values[0], values[1])
        words = fast.bits_at(np.ones(16, np.uint64), values[2])
    slots = np.zeros((3, 16), np.uint64)
    for part in (0, 1):
        fast.sealed_counts(frozen(slots), words, at, frozen(slots[:2, 4].copy()), part)
    fast.seal(frozen(words), 2**64 - 1, 5, 3)
    fast.best(fast.match_counts(np.zeros((3, 8), np.uint8), np.zeros(8, np.uint8)), 8, 2)
    fast.and_count_rows(slots, slots[0], at)
    assert before == [len(loop.signatures) for loop in loops]
