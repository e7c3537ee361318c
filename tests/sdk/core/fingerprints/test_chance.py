"""Chance: the closed form against exact fractions, and against the keys of random matrices."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from modelkin.core.fingerprints.chance import collision_probability, expected_keys, log10_tail
from modelkin.core.fingerprints.lines import members_of_key, size_of_set
from modelkin.core.fingerprints.matrix_keys import line_keys


@pytest.mark.parametrize("length", [64, 65, 95, 96, 127, 128, 255, 256, 425, 1023, 1024, 4096])
def test_the_probability_that_two_lines_share_a_key(length: int) -> None:
    """To 1e-12 of the sum in whole numbers, and below 6e-8."""
    size, members = size_of_set(length), members_of_key(length)
    terms = (
        Fraction(
            comb(size, k) * comb(length - size, size - k) * comb(k, members),
            comb(2 * size - k, members),
        )
        for k in range(members, size + 1)
    )
    exact = sum(terms, Fraction(0)) / comb(length, size)
    assert abs(Fraction(collision_probability(length)) / exact - 1) < 1e-12
    assert exact < 6e-8


def test_the_probability_for_long_lines_is_a_number() -> None:
    """Where the probability of sets that share nothing is below the least float."""
    found = [collision_probability(length) for length in (16_384, 131_072, 1 << 22)]
    assert all(0 < each < 6e-8 for each in found)
    assert max(found) / min(found) < 1.2  # it tends to that of sets of 2%, whatever the length


@pytest.mark.parametrize(("count", "expected"), [(1, 0.01), (3, 2.0), (40, 30.5), (20, 30.5)])
def test_the_tail_of_the_number_of_keys(count: int, expected: float) -> None:
    """That of Poisson, to twelve digits."""
    with localcontext(prec=60):
        mean = Decimal(expected)
        below = sum(mean**k / math.factorial(k) for k in range(count)) * (-mean).exp()
        assert float((1 - below).log10()) == pytest.approx(log10_tail(count, expected), rel=1e-12)


def test_the_tail_goes_below_the_least_float() -> None:
    """A copy of a large model has thousands of keys where none is expected."""
    with localcontext(prec=60):
        mean, count = Decimal("0.5"), 4000
        terms = (mean**k / math.factorial(k) for k in range(count, count + 40))
        exact = (sum(terms) * (-mean).exp()).log10()
        assert float(exact) == pytest.approx(log10_tail(count, 0.5), rel=1e-12)
    assert (0.0, -math.inf) == (log10_tail(0, 3.0), log10_tail(2, 0.0))


def test_strangers_share_as_many_keys_as_expected() -> None:
    """Rows of two random matrices: their common keys are within Poisson's range of lambda."""
    lines = 40_000
    first, second = (
        np.random.default_rng(seed).standard_normal((lines, 128), np.float32) for seed in (1, 2)
    )
    keys = [line_keys(matrix)[0].keys for matrix in (first, second)]
    common = np.intersect1d(keys[0], keys[1]).size
    expected = expected_keys({128: lines, 5: 9}, {128: lines, 7: 9}, 1)
    assert expected > 30
    assert abs(common - expected) < 4 * math.sqrt(expected)
    assert expected_keys({128: lines}, {128: lines}, 8) == expected / 8
