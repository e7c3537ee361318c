"""Private supports: their size, their noise, and all that they refuse."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from modelkin import InvalidInput, private_support
from modelkin.core.privacy.gaussian import gaussian_sigma
from modelkin.core.privacy.noise import Draws

SUMS = np.arange(100) ** 2
GIVEN: dict[str, Any] = {"k": 10, "epsilon": 1.0, "delta": 1e-5, "clip": 2.0}


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.float32, np.float64])
def test_clear_sums_are_found_in_small_noise(dtype: Any) -> None:
    """Where sums differ by far more than the noise, the K largest of them are the support."""
    found = private_support(
        (SUMS * 3).astype(dtype), 10, epsilon=100.0, delta=1e-5, clip=0.01, seed=1
    )
    assert list(range(90, 100)) == found.indices.tolist()
    assert 100 == found.num_parameters
    assert np.dtype(np.uint32) == found.indices.dtype


def test_a_support_has_k_indices_whatever_the_sums() -> None:
    """So how many parameters the samples moved does not show; equal sums are ordered by chance."""
    found = [private_support(np.zeros(500, int), 50, 1.0, 1e-5, 1e-9) for _ in range(4)]
    assert {50} == {support.k for support in found}
    assert all(a != b for a, b in pairwise(found))
    assert 500 == private_support(np.zeros(500), 500, 1.0, 1e-5, 1.0).k


def test_noise_is_that_of_the_claim() -> None:
    """It is normal, of the sigma that the claim needs times the clip, and its own for each sum."""
    found = Draws(7).gaussian(200_001, 3.0)
    assert (200_001,) == found.shape
    assert abs(found.mean()) < 0.03
    assert abs(found.std() - 3.0) < 0.02
    assert abs((np.abs(found) < 3.0).mean() - 0.6827) < 0.005
    assert abs((np.abs(found) > 9.0).mean() - 0.0027) < 0.0005
    assert abs(np.corrcoef(found[:100_000], found[100_000:200_000])[0, 1]) < 0.02


def test_the_noise_of_a_support_has_the_sigma_of_its_claim() -> None:
    """Of two sums, how often the smaller one wins is what Gaussian noise of that size makes."""
    size, clip = 4_000, 5.0
    sigma = clip * gaussian_sigma(1.0, 1e-5)
    sums = np.r_[np.full(size, 0), np.full(size, round(2 * sigma))]
    found = private_support(sums, size, 1.0, 1e-5, clip, seed=5)
    # The threshold is halfway, one sigma from both: 15.9% of the smaller ones are above it.
    assert abs((found.indices < size).mean() - 0.1587) < 0.02


def test_draws_differ_unless_they_are_seeded() -> None:
    """The system's bits are the default; a seed gives the same support each time."""
    sums = np.zeros(1_000)
    first, second = (private_support(sums, **GIVEN) for _ in range(2))
    assert first != second
    first, second = (private_support(sums, **GIVEN, seed=3) for _ in range(2))
    assert first == second
    assert first != private_support(sums, **GIVEN, seed=4)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"epsilon": -1.0}, "epsilon must be above 0"),
        ({"epsilon": float("nan")}, "epsilon must be above 0"),
        ({"epsilon": float("inf")}, "at most 100"),
        ({"delta": 0.0}, "delta must be above 0 and below 1"),
        ({"delta": 1.0}, "delta must be above 0 and below 1"),
        ({"clip": 0.0}, "clip must be a number above 0"),
        ({"clip": -1.0}, "clip must be a number above 0"),
        ({"clip": float("inf")}, "clip must be a number above 0"),
        ({"k": 0}, "k must be an integer from 1 to 100"),
        ({"k": 101}, "k must be an integer from 1 to 100"),
        ({"k": 2.5}, "k must be an integer from 1 to 100"),
        ({"samples": 0}, "samples must be an integer from 1"),
        ({"samples": 10}, "are not of 10 vectors of at most 2 each"),
        ({"clip": 1e9}, "exceed 2\\^31"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 0.5}, "seed must be"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], says: str) -> None:
    """Each error names the argument and its range."""
    with pytest.raises(InvalidInput, match=says) as raised:
        private_support(SUMS, **(GIVEN | wrong))
    assert raised.value.field in {*wrong, "sums"}


@pytest.mark.parametrize(
    ("sums", "says"),
    [
        ([1.0, float("nan")], r"sums\[1\] = nan is not finite"),
        ([float("inf"), 1.0], r"sums\[0\] = inf is not finite"),
        ([], "a vector of numbers"),
        ([[1.0, 2.0]], "a vector of numbers"),
        (["a"], "a vector of numbers"),
        ([True, False], "a vector of numbers"),
    ],
)
def test_wrong_sums_are_refused(sums: Any, says: str) -> None:
    """The error says which entry, or what they are."""
    with pytest.raises(InvalidInput, match=says):
        private_support(sums, 1, 1.0, 1e-5, 1.0)


def test_sums_of_so_many_samples_are_taken() -> None:
    """Sums that n clipped vectors can have are not refused, also at the limit."""
    vector = np.array([3.0, 4.0])
    assert 1 == private_support(7 * vector, 1, 1.0, 1e-5, 5.0, samples=7).k
    with pytest.raises(InvalidInput, match="some vector was not clipped"):
        private_support(7.01 * vector, 1, 1.0, 1e-5, 5.0, samples=7)
