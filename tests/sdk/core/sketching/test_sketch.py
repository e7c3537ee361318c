"""Coordinate sketches: the sample is fair and fixed, the estimates keep to their errors."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.kernels import fast, reference
from modelkin.core.kernels.reference.search import mix64
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.overlap import similarity
from modelkin.core.sketching.sketch import (
    GAMMA,
    Sketch,
    coordinates,
    similarity_in_sample,
    standard_error_in_sample,
    wide_coordinates,
)
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, SpaceMismatch

SIZE = 256
GOLDEN_32 = [8852, 27277, 46421, 53818, 69441, 90045]
GOLDEN_64 = [65128984024703747, 198792277997814183, 9134252508810177142]


def drawn(m: int, k: int, seed: int) -> Support:
    indices = np.random.default_rng(seed).choice(m, k, replace=False)
    return Support.from_indices(np.sort(indices), m)


def test_the_sample_is_golden() -> None:
    """These coordinates are constants: others mean another sample, and sketches that compare
    wrongly.
    """
    assert GOLDEN_32 == coordinates(1_000_000, 64, 1)[:6].tolist()
    assert GOLDEN_64 == coordinates(2**63 - 1, 64, 2**32 - 1)[[0, 1, 63]].tolist()


@given(m=st.integers(SIZE + 1, 2**63 - 1), seed=st.integers(0, 2**32 - 1))
def test_one_coordinate_a_stretch(m: int, seed: int) -> None:
    """Coordinate j lies in stretch j of any space, so the sample ascends and ends below M."""
    sample = coordinates.__wrapped__(m, SIZE, seed).tolist()
    for j, coordinate in enumerate(sample):
        assert j * m // SIZE <= coordinate <= ((j + 1) * m - 1) // SIZE


def test_the_sample_is_fair() -> None:
    """Over 2,000 seeds each of 300 coordinates is taken by 256/300 of the samples, the ends of
    stretches too.
    """
    counts = np.zeros(300)
    for seed in range(2000):
        counts += np.bincount(coordinates.__wrapped__(300, SIZE, seed), minlength=300)
    expected = 2000 * SIZE / 300
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.slow
@given(data=st.data(), m=st.sampled_from([100, 257, 1000, 2**32, 2**32 + 1, 2**63 - 1]))
def test_bits_say_what_the_support_holds(
    each_kernels: ModuleType, data: st.DataObject, m: int
) -> None:
    """Bit j is set where the support has coordinate j; in small spaces coordinate j is j."""
    sample = coordinates(m, SIZE, 3).tolist() if m > SIZE else list(range(m))
    members = st.sampled_from(sample) | st.integers(0, m - 1)
    indices = data.draw(st.sets(members, min_size=1, max_size=20))
    sketch = Support.from_indices(sorted(indices), m).sketch(SIZE, 3)
    bits = np.unpackbits(sketch.words.view(np.uint8), bitorder="little")[: len(sample)]
    assert [coordinate in indices for coordinate in sample] == bits.astype(bool).tolist()
    assert sum(coordinate in indices for coordinate in sample) == sketch.members


@pytest.mark.parametrize(
    ("m", "k"), [(100, 7), (257, 200), (10**5, 10**4), (10**5, 100), (2**33, 9)]
)
def test_a_packed_support_shows_the_same(each_kernels: ModuleType, m: int, k: int) -> None:
    """Read from a bitmap or a list, the sketch is that of the support, K and all."""
    support = Support.from_indices(np.linspace(0, m - 1, k).astype(np.int64), m)
    assert support.sketch(SIZE, 3) == PackedSupport.pack(support).sketch(SIZE, 3)


def test_a_sketch_knows_its_bytes() -> None:
    """There and back in the native format; and a support makes its own, of the default sample."""
    sketch = drawn(10**6, 90_000, 0).sketch()
    assert drawn(10**6, 90_000, 0).sketch(1 << 16, 1) == sketch
    assert sketch == Sketch.from_bytes(sketch.to_bytes())


@given(m=st.integers(SIZE + 1, 2**32), seed=st.integers(0, 2**32 - 1))
def test_narrow_spaces_have_the_same_sample(m: int, seed: int) -> None:
    """Up to 2^32 parameters the coordinates are computed in 64 bits, and are the same."""
    drawn_ = mix64(np.uint64(seed) + np.arange(SIZE, dtype=np.uint64) * np.uint64(GAMMA))
    assert wide_coordinates(drawn_, m).tolist() == coordinates.__wrapped__(m, SIZE, seed).tolist()


def test_kernels_agree_on_large_supports() -> None:
    """Half a million indices are looked up alike, where most are passed over and where none are."""
    sample = coordinates(5_000_000, 1 << 16, 1)
    for k in (50, 500_000):
        indices = drawn(5_000_000, k, k).indices
        assert reference.members(indices, sample).tolist() == fast.members(indices, sample).tolist()


def test_small_spaces_are_exact() -> None:
    """Where the sample is all of M the similarity is the exact one, without error."""
    a, b = drawn(200, 60, 1), drawn(200, 50, 2)
    one, other = a.sketch(SIZE), b.sketch(SIZE)
    assert (similarity(a, b), 0.0) == (one.similarity(other), one.standard_error(other))


@pytest.mark.parametrize("shared", [0, 5000, 12_000, 19_800, 20_000])
def test_estimates_keep_to_their_error(shared: int) -> None:
    """Over 300 seeds the estimates of a pair have S for a mean and the stated error, from nothing
    shared to everything.
    """
    indices = np.random.default_rng(shared).permutation(250_000)[: 40_000 - shared]
    a = Support.from_indices(np.sort(indices[:20_000]), 250_000)
    b = Support.from_indices(np.sort(indices[20_000 - shared :]), 250_000)
    pairs = [(a.sketch(4096, seed), b.sketch(4096, seed)) for seed in range(300)]
    estimates = np.array([x.similarity(y) for x, y in pairs])
    error = np.mean([x.standard_error(y) for x, y in pairs])
    assert abs(estimates.mean() - shared / 20_000) <= 4 * error / np.sqrt(300)
    assert estimates.std() <= 1.2 * error
    assert error * (0 < shared < 20_000) <= 1.4 * estimates.std()


def test_clustered_supports_are_seen_in_proportion() -> None:
    """A support of whole rows of a matrix, or of every hundredth parameter, keeps its share of
    members in the sample.
    """
    for indices in (np.arange(400_000, 500_000), np.arange(0, 10**6, 10)):
        members = Support.from_indices(indices, 10**6).sketch(1 << 16).members
        assert abs(members - 6553.6) < 4 * np.sqrt(6553.6)


def test_the_promised_error() -> None:
    """At 5,000 members a support the error is within 0.0063 for every S, and never zero."""
    for s in np.linspace(0, 1, 21):
        shared = round(5000 * s)
        assert 0 < standard_error_in_sample(shared, 5000, 5000) < 0.0063
        assert s == pytest.approx(similarity_in_sample(shared, 5000, 5000), abs=1e-4)
    assert 0.0 == similarity_in_sample(0, 0, 0)
    assert standard_error_in_sample(0, 0, 0) > 0.2


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((63,), "size"),
        ((0,), "size"),
        ((1 << 21,), "size"),
        ((64, -1), "seed"),
        ((64, 2**32), "seed"),
    ],
)
def test_samples_are_checked(arguments: Any, field: str) -> None:
    """A size or a seed out of its range is refused by name, in large spaces and in small ones."""
    for m in (10, 10**6):
        with pytest.raises(InvalidParameter) as caught:
            Support.from_indices([1], m).sketch(*arguments)
        assert field == caught.value.field


@pytest.mark.parametrize(
    ("words", "m", "k", "field"),
    [
        (np.zeros(1, np.int64), 100, 1, "words"),
        (np.zeros((1, 1), np.uint64), 100, 1, "words"),
        (np.zeros(0, np.uint64), 100, 1, "size"),
        (np.zeros(1, np.uint64), 100, 101, "support_size"),
        (np.zeros(1, np.uint64), 100, 0, "support_size"),
        (np.full(1, 0b111, np.uint64), 100, 1, "words"),
        (np.full(1, 0b11, np.uint64), 64, 1, "words"),
        (np.zeros(1, np.uint64), 64, 1, "words"),
        (np.full(1, 1 << 60, np.uint64), 60, 1, "words"),
        (np.array([0, 1], np.uint64), 60, 1, "words"),
    ],
)
def test_untrusted_words_are_checked(words: Any, m: int, k: int, field: str) -> None:
    """Words that no support of K can have, of another type or behind M, are refused."""
    with pytest.raises(InvalidParameter) as caught:
        Sketch.from_words(words, num_parameters=m, support_size=k)
    assert field == caught.value.field


def test_other_samples_are_never_compared() -> None:
    """Sketches of another M, size or seed are an error, not a low similarity."""
    one = Support.from_indices([1], 1000).sketch(64, 1)
    for m, size, seed, name in (
        (1001, 64, 1, "num_parameters"), (1000, 128, 1, "size"), (1000, 64, 2, "seed"),
    ):  # fmt: skip
        with pytest.raises(SpaceMismatch, match=f"different {name} "):
            one.similarity(Support.from_indices([1], m).sketch(size, seed))


def test_value_semantics() -> None:
    """Equal sketches are one key of a dict; words are copied and cannot be changed."""
    support = drawn(10**6, 90_000, 0)
    one = support.sketch(1024)
    again = Sketch.from_words(
        one.words, num_parameters=one.num_parameters, support_size=one.support_size, seed=1
    )
    assert {one: 1} == {again: 1}
    assert one != support.sketch(1024, 2)
    assert one != "sketch"
    assert not again.words.flags.writeable
    assert repr(one).startswith("<Sketch of 1,024 coordinates, ")
