"""Fast similarity sketching: its specification, its accuracy, its shards."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin.core.kernels import fast, reference
from modelkin.core.sketching.schemes import default_scheme, permutations
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import InvalidSignature, SpaceMismatch

M32 = 2**32
GOLDEN = [575731632, 816053209, 51117615, 701227600]


def mix(x: int) -> int:
    """lowbias32, in Python's own integers."""
    x = ((x ^ x >> 16) * 0x7FEB352D) % M32
    x = ((x ^ x >> 15) * 0x846CA68B) % M32
    return x ^ x >> 16


def by_the_book(indices: list[int], h: int, seed: int) -> list[int]:
    """The specification, word for word: every round for every bin, no early end."""
    bits, rounds, key = h.bit_length() - 1, min(64, h - 1), mix((seed + 0x9E3779B9) % M32)
    hashed = [mix(i ^ key) for i in indices]
    least: dict[int, int] = {}
    for r in range(rounds):
        for first in hashed:
            p = mix((first + r * 0x9E3779B9) % M32) if r else first
            least[p % h] = min(least.get(p % h, M32), r << 32 - bits | p >> bits)
    for empty in set(range(h)) - set(least):
        offset = (rounds + empty) * 0x9E3779B9
        least[empty] = rounds << 32 - bits | min(mix((p + offset) % M32) for p in hashed) >> bits
    return [least[b] for b in range(h)]


@settings(max_examples=60)
@given(
    indices=st.sets(st.integers(0, M32 - 1), min_size=1, max_size=40),
    h=st.sampled_from([2, 4, 16, 64, 256]),
    seed=st.integers(0, M32 - 1),
)
def test_values_are_the_specifications(
    each_kernels: ModuleType, indices: set[int], h: int, seed: int
) -> None:
    """Both kernels give what the specification says, in plain integers, for any support."""
    support = Support.from_indices(sorted(indices), M32)
    signature = support.signature(h, seed, "fss32")
    assert np.uint32 == signature.values.dtype
    assert by_the_book(sorted(indices), h, seed) == signature.values.tolist()


@pytest.mark.parametrize("size", [1023, 1025, 65_535, 65_537, 65_600, 300_000])
@pytest.mark.parametrize("h", [2, 256, 1024])
def test_kernels_agree_on_long_supports(size: int, h: int) -> None:
    """Around every block, and where most hashes are passed over, the two give the same bits."""
    indices = np.unique(np.random.default_rng(size).integers(0, 2**24, size, dtype=np.uint32))
    assert reference.fss32(indices, h, 7).tolist() == fast.fss32(indices, h, 7).tolist()


def test_values_are_golden() -> None:
    """These values of a small support are constants: others mean another scheme."""
    support = Support.from_indices([3, 5, 8, 300, 999], 1000)
    assert GOLDEN == support.signature(num_perm=4, scheme="fss32").values.tolist()


def pair(k: int, shared: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Two supports of k indices that share some, at random places of a space of 2^31."""
    drawn = rng.choice(2**31, 2 * k - shared, replace=False, shuffle=True).astype(np.uint32)
    return np.sort(drawn[:k]), np.sort(drawn[k - shared :])


@pytest.mark.parametrize(
    ("k", "shared", "trials"),
    [(1, 0, 200), (1, 1, 50), (2, 1, 3000), (10, 5, 3000), (200, 100, 2000), (10_000, 5000, 2000)],
)
def test_the_error_is_at_most_that_of_minhash(k: int, shared: int, trials: int) -> None:
    """At every K the mean squared error of J is at most 1.05 J(1-J)/h, but for four times its own
    standard error over the trials.
    """
    rng, h = np.random.default_rng(k), 256
    j = shared / (2 * k - shared)
    errors: npt.NDArray[np.float64] = np.empty(trials)
    for seed in range(trials):
        values = [fast.fss32(indices, h, seed) for indices in pair(k, shared, rng)]
        errors[seed] = (np.mean(values[0] == values[1]) - j) ** 2
    slack = 4 * errors.std() / np.sqrt(trials)
    assert errors.mean() <= 1.05 * j * (1 - j) / h + slack


def test_small_supports_are_known_better() -> None:
    """At K = 200 the variance is at most 0.7 of classic MinHash's: bins are drawn without
    replacement.
    """
    rng = np.random.default_rng(0)
    drawn = [pair(200, 100, rng) for _ in range(1000)]
    shares = [
        np.mean(fast.fss32(a, 256, seed) == fast.fss32(b, 256, seed))
        for seed, (a, b) in enumerate(drawn)
    ]
    assert np.var(shares) <= 0.7 * (1 / 3) * (2 / 3) / 256


@given(cuts=st.lists(st.integers(0, 60), max_size=3), step=st.sampled_from([17, 500, 999]))
def test_merge_is_the_signature_of_the_union(cuts: list[int], step: int) -> None:
    """However a support is cut into shards, small ones too, their least values are the whole's."""
    indices = np.arange(0, 1000, step)
    parts = [p for p in np.split(indices, sorted(min(c, indices.size) for c in cuts)) if p.size]
    shards = [Support.from_indices(p, 1000).signature(64, scheme="fss32") for p in parts]
    whole = Support.from_indices(indices, 1000).signature(64, scheme="fss32")
    assert whole == shards[0].merge(*shards[1:])


def test_estimates_do_not_depend_on_where_indices_lie() -> None:
    """Runs of neighbouring indices, as rows of a matrix give them, are estimated as well as any."""
    a, b = (Support.from_indices(np.arange(s, s + 40_000), 10**6) for s in (0, 20_000))
    made = [[x.signature(256, seed, "fss32") for x in (a, b)] for seed in range(200)]
    estimates = np.array([x.jaccard(y) for x, y in made])
    error = np.sqrt(1 / 3 * 2 / 3 / 256)
    assert abs(estimates.mean() - 1 / 3) < 4 * error / np.sqrt(200)
    assert 0.8 < estimates.std() / error < 1.2


@pytest.mark.parametrize("h", [1, 3, 255, 4095])
def test_h_is_a_power_of_two(h: int) -> None:
    """Any other h is refused by name, to sign and to read."""
    with pytest.raises(InvalidSignature, match="power of two") as caught:
        Support.from_indices([1], 9).signature(h, scheme="fss32")
    assert "num_perm" == caught.value.field
    with pytest.raises(InvalidSignature, match="power of two"):
        Signature.from_values([1] * h, num_parameters=9, support_size=1, scheme="fss32")


def test_fss32_ends_at_32_bits() -> None:
    """Beyond 2^32 parameters it is an error that names the scheme to take."""
    large = Support.from_indices([2**32], 2**32 + 1)
    with pytest.raises(InvalidSignature, match="need affine64"):
        large.signature(scheme="fss32")


def test_fss32_stays_apart() -> None:
    """It is never the default, is not comparable with affine32, and has no permutations."""
    support = Support.from_indices([1, 2], 9)
    assert "affine32" == default_scheme(9)
    with pytest.raises(SpaceMismatch, match="different scheme"):
        support.signature(scheme="fss32").jaccard(support.signature())
    with pytest.raises(InvalidSignature, match="no permutations"):
        permutations("fss32", 4, 1)


def test_datasketch_has_none() -> None:
    """Taking it to datasketch is an error that says what to do."""
    with pytest.raises(InvalidSignature, match="sign the support with scheme='affine32'"):
        Support.from_indices([1], 9).signature(scheme="fss32").to_datasketch()
