"""What all parties draw alike, and the moves it decides: golden values, kernels, invariants."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin.core.kernels import fast, reference
from modelkin.errors import InvalidParameter
from modelkin.federation.shards.draws import below, draws, mix, stream
from modelkin.federation.shards.partition import Partition
from modelkin.federation.shards.quantization import BUCKET, LEVELS, OMEGA, quantize
from modelkin.federation.shards.thinning import Thinning, omega

SEEDS = st.integers(0, 2**64 - 1)
WORD = 2**64


def splitmix64(seed: int, i: int) -> int:
    """A draw in whole numbers of Python, as the paper of splitmix64 gives it."""
    x = (seed + i * 0x9E3779B97F4A7C15) % WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB % WORD
    return x ^ x >> 31


def digest_of(array: npt.NDArray[Any]) -> str:
    return hashlib.sha256(array.astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()[:16]


def test_draws_are_those_of_the_paper() -> None:
    """splitmix64 from 0 on gives its published first values, the first draw being of state 0."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert published == draws(0, 3, first=1).tolist()


def test_draws_never_change() -> None:
    """Draws, streams, cuts, kept places and roundings of a release are those of every release."""
    values = np.sin(np.arange(2000, dtype=np.float64)).astype(np.float32)
    rounded = quantize(values, 9)
    assert {
        "stream": "d858714364fd8610",
        "draws": "303899474e5fcc6c",
        "partition": "517afd000448015a",
        "kept": "ebb9693947a044bd",
        "codes": "9d6492c83f4952be",
        "scales": "5f6d18ed4036e664",
    } == {
        "stream": f"{stream(7, 1, 2, 3):016x}",
        "draws": digest_of(draws(stream(7), 1000)),
        "partition": digest_of(Partition(1001, 7, 5).indices(3)),
        "kept": digest_of(Thinning(1001, 16, stream(7, 2)).positions),
        "codes": digest_of(rounded.codes),
        "scales": digest_of(rounded.scales),
    }


@given(SEEDS, st.integers(0, 2**40), st.integers(1, 50))
def test_draws_are_splitmix64(seed: int, first: int, count: int) -> None:
    """Both kernels draw what whole numbers of Python give, from any place on."""
    expected = [splitmix64(seed, i) for i in range(first, first + count)]
    assert expected == reference.draw(seed, first, count).tolist()
    assert expected == fast.draw(seed, first, count).tolist()
    assert expected[0] == int(mix(np.array([(seed + first * 0x9E3779B97F4A7C15) % WORD], "u8"))[0])


@given(SEEDS, st.integers(1, 2**32 - 1))
def test_bounded_draws_are_below_their_bound(seed: int, bound: int) -> None:
    """The high word of the multiplication: from 0 to the bound, exclusive."""
    found = below(draws(seed, 20), bound).tolist()
    assert [(splitmix64(seed, i) >> 32) * bound >> 32 for i in range(20)] == found
    assert all(0 <= each < bound for each in found)


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=4))
def test_streams_differ_by_every_label(labels: list[int]) -> None:
    """Another label, order or length is another stream."""
    seeds = {stream(3, *labels), stream(3, *labels, 0), stream(4, *labels), stream(3)}
    assert 4 == len(seeds)


@st.composite
def cuts(draw: st.DrawFn) -> Partition:
    """Partitions of 1 to 400 parameters in any number of shards."""
    m = draw(st.integers(1, 400))
    return Partition(m, draw(st.integers(1, m)), draw(SEEDS))


@pytest.mark.slow
@given(cuts())
@settings(max_examples=150)
def test_every_parameter_is_in_one_shard(cut: Partition) -> None:
    """Shards are disjoint, cover everything, ascend, and differ in size by one at most."""
    shards = [cut.indices(a) for a in range(cut.shards)]
    assert list(range(cut.num_parameters)) == sorted(np.concatenate(shards).tolist())
    assert all((np.diff(each) > 0).all() for each in shards)
    sizes = [each.size for each in shards]
    assert sizes == cut.sizes().tolist() == [cut.size(a) for a in range(cut.shards)]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.slow
@given(cuts())
@settings(max_examples=150)
def test_the_formula_of_the_page(cut: Partition) -> None:
    """Parameter ``b * A + (a - r_b) mod A`` is in shard a, with r_b drawn."""
    a = cut.shards
    for block in range(cut.blocks):
        turn = (splitmix64(stream(cut.seed, 1), block) >> 32) * a >> 32
        for shard in range(a):
            index = block * a + (shard - turn) % a
            assert (index < cut.num_parameters) == (index in cut.indices(shard))


@pytest.mark.slow
@given(cuts(), st.data())
@settings(max_examples=150)
def test_joining_undoes_splitting(cut: Partition, data: st.DataObject) -> None:
    """Of a whole vector, of a stretch of whole blocks, and by both kernels."""
    vector = np.arange(cut.num_parameters, dtype=np.float32) + 0.5
    parts = cut.split(vector)
    for a, part in enumerate(parts):
        assert vector[cut.indices(a)].tolist() == part.tolist()
    assert vector.tolist() == cut.join(parts).tolist()
    first = data.draw(st.integers(0, cut.blocks - 1))
    tail = vector[first * cut.shards :]
    pieces = cut.split_stretch(tail, first)
    assert tail.tolist() == cut.join_stretch(pieces, first).tolist()
    for a, piece in enumerate(pieces):
        assert piece.tolist() == parts[a][parts[a].size - piece.size :].tolist()


@given(cuts())
@settings(max_examples=50)
def test_a_split_fills_the_array_that_it_is_given(cut: Partition) -> None:
    """The shards are the same, and lie there; the vector stays as it was."""
    vector = np.arange(cut.num_parameters, dtype=np.float32) + 0.5
    out = np.zeros_like(vector)
    parts = cut.split(vector, out)
    assert [part.tolist() for part in cut.split(vector)] == [part.tolist() for part in parts]
    if cut.shards > 1:
        assert np.concatenate(parts).tolist() == out.tolist()
        assert all(np.shares_memory(part, out) for part in parts)
    assert (np.arange(cut.num_parameters) + 0.5).tolist() == vector.tolist()


def test_an_array_that_cannot_take_the_shards_is_refused() -> None:
    """Of another size or dtype, read-only, not contiguous, or the vector itself."""
    vector = np.arange(8, dtype=np.float32)
    frozen = np.zeros(8, np.float32)
    frozen.flags.writeable = False
    wide, strided = np.zeros(8), np.zeros(16, np.float32)[::2]
    unfit: tuple[npt.NDArray[Any], ...] = (np.zeros(7, np.float32), wide, strided, frozen, vector)
    for out in unfit:
        with pytest.raises(InvalidParameter, match="out must be"):
            Partition(8, 2, 1).split(vector, out)


@pytest.mark.parametrize("shards", [2, 7, 31, 50, 1000])
@pytest.mark.parametrize("size", [1000, 70_001])
def test_kernels_move_alike(shards: int, size: int) -> None:
    """Dealing, collecting and taking one in c are the same by both kernels, at block seams too."""
    words = np.random.default_rng(size).integers(0, 2**32, size, dtype=np.uint32)
    sizes = Partition(size + 3 * shards, shards, 1).sizes(3)
    starts = np.cumsum([0, *sizes[:-1].tolist()])
    dealt = reference.deal(words, stream(1, 1), 3, starts)
    assert np.array_equal(dealt, fast.deal(words, stream(1, 1), 3, starts))
    assert np.array_equal(words, reference.collect(dealt, stream(1, 1), 3, starts))
    assert np.array_equal(words, fast.collect(dealt, stream(1, 1), 3, starts))
    count = size // shards
    taken = reference.take_one_in(words, 5, 2, shards, count)
    assert np.array_equal(taken, fast.take_one_in(words, 5, 2, shards, count))


@pytest.mark.slow
def test_a_parameter_is_in_any_shard_equally_often() -> None:
    """Over 3,000 seeds each of 5 shards has the parameter a fifth of the time (chi-square)."""
    counts = np.zeros(5)
    for seed in range(3000):
        counts[[37 in Partition(50, 5, seed).indices(a) for a in range(5)].index(True)] += 1
    assert ((counts - 600) ** 2 / 600).sum() < 23.5  # one in 10,000


@pytest.mark.parametrize(
    ("m", "shards", "seed", "field"),
    [
        (0, 1, 0, "num_parameters"),
        (5, 6, 0, "shards"),
        (5, 0, 0, "shards"),
        (5, 1, -1, "seed"),
        (5, 1, 2**64, "seed"),
    ],
)
def test_partitions_that_cannot_be(m: int, shards: int, seed: int, field: str) -> None:
    """The error names the argument."""
    with pytest.raises(InvalidParameter) as raised:
        Partition(m, shards, seed)
    assert field == raised.value.field


def test_other_sizes_are_refused() -> None:
    """A vector, parts or a shard of another partition do not go through."""
    cut = Partition(10, 3, 1)
    parts = cut.split(np.zeros(10, np.float32))
    for refused in (
        lambda: cut.split(np.zeros(11, np.float32)),
        lambda: cut.join(parts[:2]),
        lambda: cut.join([parts[0][:-1], *parts[1:], np.zeros(1, np.float32)]),
        lambda: cut.indices(3),
    ):
        with pytest.raises(InvalidParameter):
            refused()


@given(st.integers(1, 300), st.integers(1, 40), SEEDS)
@settings(max_examples=200)
def test_one_of_each_block_is_kept(size: int, one_in: int, seed: int) -> None:
    """One of each whole block, perhaps one of the last; spreading undoes taking, with zeros."""
    thinning = Thinning(size, one_in, seed)
    kept = thinning.positions
    assert thinning.count == kept.size
    assert (kept // one_in).tolist() == list(range(kept.size))
    assert size // one_in <= kept.size <= -(-size // one_in)
    assert (kept < size).all()
    values = np.arange(1, size + 1, dtype=np.float32)
    assert values[kept].tolist() == thinning.take(values).tolist()
    spread = thinning.spread(thinning.take(values))
    assert values[kept].tolist() == spread[kept].tolist()
    assert kept.size == np.count_nonzero(spread)


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 40), SEEDS)
def test_pieces_keep_what_the_whole_keeps(blocks: int, parts: int, one_in: int, seed: int) -> None:
    """A vector thinned piece by piece keeps the values that it keeps as a whole."""
    size = blocks * parts * one_in
    whole = Thinning(size, one_in, seed).positions.tolist()
    step = blocks * one_in
    pieces = [
        Thinning(step, one_in, seed, at * blocks).positions + at * step for at in range(parts)
    ]
    assert whole == np.concatenate(pieces).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("one_in", "quantized"), [(4, False), (16, False), (1, True), (4, True)])
def test_compression_has_the_right_mean_and_variance(one_in: int, quantized: bool) -> None:
    """Over a million draws: C(x) has x as its mean, and omega times its square as variance."""
    rng = np.random.default_rng(one_in)
    values = rng.normal(size=1030).astype(np.float32)
    rounds = 2000 if quantized else 10_000
    total, squares = np.zeros(values.size), 0.0
    for seed in range(rounds):
        thinning = Thinning(values.size, one_in, stream(seed, 2))
        kept = thinning.take(values) * np.float32(one_in)
        if quantized:
            kept = quantize(kept, stream(seed, 3)).values()
        spread = thinning.spread(kept) if quantized else None
        error = (spread if spread is not None else _spread(thinning, kept, values.size)) - values
        total += error
        squares += float(error.astype(np.float64) @ error)
    size = float(values.astype(np.float64) @ values)
    found = squares / rounds / size
    assert omega(one_in, quantized=quantized) == pytest.approx(found, rel=0.02, abs=2e-5)
    spread_of_mean = np.sqrt(found * size / values.size / rounds)
    assert abs(total.mean() / rounds) < 4 * spread_of_mean / np.sqrt(values.size) * 2


def _spread(thinning: Thinning, kept: Any, size: int) -> Any:
    out = np.zeros(size, np.float32)
    out[thinning.positions] = kept
    return out


@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=1500),
    SEEDS,
)
@settings(max_examples=60)
def test_roundings_are_within_a_step(numbers: list[float], seed: int) -> None:
    """Every value comes back within one step of its bucket, zeros as zeros, signs kept."""
    values = np.array(numbers, np.float32)
    rounded = quantize(values, seed)
    assert rounded.codes.min() >= -LEVELS
    assert -(-values.size // BUCKET) == rounded.scales.size
    steps = np.repeat(rounded.scales.astype(np.float64) / LEVELS, BUCKET)[: values.size]
    assert (np.abs(rounded.values() - values) <= steps * 1.001 + 1e-37).all()
    assert not rounded.values()[values == 0].any()


def test_the_variance_of_rounding_is_as_declared() -> None:
    """Measured on normal values: 1.1e-4 of their squares."""
    values = np.random.default_rng(1).normal(size=200_000).astype(np.float32)
    error = quantize(values, 5).values() - values
    assert OMEGA == pytest.approx(float((error**2).sum() / (values**2).sum()), rel=0.05)
