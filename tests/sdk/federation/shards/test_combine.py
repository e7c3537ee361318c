"""The aggregators' rules, and sums that hide their terms, against numpy and whole numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.combine import combine, mean, median, trimmed_mean
from modelkin.federation.shards.fixed_point import FixedPoint, least_power
from modelkin.federation.shards.plan import CHECK_WORDS, RULES

WEIGHTS = st.lists(st.floats(0.001, 2.0**53), min_size=1, max_size=12)


def updates(members: int, size: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 0.05, size).astype(np.float32) for _ in range(members)]


@given(WEIGHTS, st.integers(0, 2**32 - 1))
def test_the_mean_is_exact_but_for_one_rounding(weights: list[float], seed: int) -> None:
    """Within one unit of the last place of the mean in fractions."""
    cells = updates(len(weights), 3, seed)
    total = sum(map(Fraction, weights))
    for at, found in enumerate(mean(cells, weights).tolist()):
        terms = [Fraction(w) * Fraction(float(v[at])) for w, v in zip(weights, cells, strict=True)]
        largest = max(abs(float(v[at])) for v in cells)
        off = abs(Fraction(found) - sum(terms, Fraction()) / total)
        assert off <= Fraction(largest) * Fraction(2) ** -24


def test_the_mean_is_that_of_float64_rounded_once() -> None:
    """The same bits as the sum in the members' order, also beyond one stretch."""
    cells, weights = updates(7, 40_000), [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    wanted = np.zeros(40_000)
    for values, weight in zip(cells, weights, strict=True):
        wanted += values.astype(np.float64) * weight
    assert np.array_equal((wanted / 25.0).astype(np.float32), mean(cells, weights))


@pytest.mark.parametrize("members", [3, 4, 11])
def test_robust_rules_are_numpys(members: int) -> None:
    """Median and trimmed mean by coordinate, weights aside; one liar moves neither far."""
    cells = updates(members, 20_000)
    weights = [1.0] * members
    stacked = np.stack(cells).astype(np.float64)
    assert np.array_equal(np.median(stacked, axis=0).astype(np.float32), median(cells, weights))
    cut = -(-members // 10)
    middle = np.sort(stacked, axis=0)[cut : members - cut].mean(axis=0)
    assert np.allclose(middle, trimmed_mean(cells, weights), atol=1e-9)
    lying = [np.full(20_000, 1e9, np.float32), *cells[1:]]
    for rule in ("median", "trimmed_mean"):
        assert np.abs(combine(rule, lying, [2.0**53, *weights[1:]])).max() < 1


def test_every_rule_of_a_plan_combines() -> None:
    """Equal members have their own values as the result, whatever the rule."""
    cells = updates(1, 10) * 3
    for rule in RULES:
        assert np.allclose(cells[0], combine(rule, cells, [1.0, 2.0, 3.0]), atol=1e-9)


def test_too_few_members_to_trim() -> None:
    """Two members leave nothing between the two that are left out."""
    with pytest.raises(InvalidParameter, match="1 of 2 members"):
        trimmed_mean(updates(2, 3), [1.0, 1.0])


@given(st.floats(0, 2.0**63))
def test_the_least_power_of_two(peak: float) -> None:
    """It holds the value, and half of it does not."""
    found = least_power(peak)
    assert found >= peak
    assert found == 2.0**-64 or found / 2 < peak
    assert 1.0 == found / 2.0 ** round(np.log2(found))


@pytest.mark.parametrize("exponent", range(-64, 64))
def test_powers_of_two_and_their_neighbours(exponent: int) -> None:
    """A power is its own; the next float above it needs the next power, wherever there is one."""
    power = 2.0**exponent
    assert power == least_power(power) == least_power(math.nextafter(power, 0))
    if exponent < 63:
        assert 2 * power == least_power(math.nextafter(power, math.inf))


@pytest.mark.parametrize("peak", [0.0, -0.0, 5e-324, 1e-310, 2.0**-65])
def test_no_value_and_subnormal_ones_have_the_smallest_power(peak: float) -> None:
    """R has a unit above zero, whatever the values are."""
    assert 2.0**-64 == least_power(peak) == FixedPoint(least_power(peak)).peak


@pytest.mark.parametrize(
    "peak", [-1.0, -5e-324, math.nan, math.inf, -math.inf, math.nextafter(2.0**63, math.inf)]
)
def test_peaks_that_cannot_be(peak: float) -> None:
    """An error names the field; a member that reports one is refused, before it spoils a round."""
    with pytest.raises(InvalidParameter) as raised:
        least_power(peak)
    assert "peak" == raised.value.field


def test_r_is_a_power_of_two() -> None:
    """Any other R would round twice."""
    with pytest.raises(InvalidParameter, match="power of two"):
        FixedPoint(0.3)


@given(
    st.integers(1, 12),
    st.floats(0.001, 2.0**20),
    st.integers(0, 2**32 - 1),
    st.lists(st.floats(0.01, 100), min_size=12, max_size=12),
)
@settings(max_examples=80)
def test_concealed_sums_are_the_plain_ones(
    members: int, scale: float, seed: int, weights: list[float]
) -> None:
    """Masks added and subtracted by pairs cancel: within n units of 2^-F, and float32's own."""
    rng = np.random.default_rng(seed)
    cells = [(scale * rng.uniform(-1, 1, 50)).astype(np.float32) for _ in range(members)]
    total = sum(weights[:members])
    shares = [weight / total for weight in weights[:members]]
    point = FixedPoint(least_power(max(float(np.abs(v).max()) for v in cells)))
    words = np.zeros(50 + CHECK_WORDS, np.uint32)
    for at, (values, share) in enumerate(zip(cells, shares, strict=True)):
        cell = point.encode(values, share)
        for other in range(members):
            mask = np.random.default_rng([min(at, other), max(at, other), seed])
            stream = mask.integers(0, 2**32, cell.size, dtype=np.uint32)
            if at != other:
                cell = cell + stream if at < other else cell - stream
        words += cell
    wanted = sum(s * v.astype(np.float64) for s, v in zip(shares, cells, strict=True))
    found = point.decode(words, members)
    assert found is not None
    allowed = members * point.unit + np.abs(wanted) * 2.0**-23
    assert (np.abs(found - wanted) <= allowed).all()
    spoilt = words.copy()
    spoilt += np.random.default_rng(seed).integers(0, 2**32, words.size, dtype=np.uint32)
    assert point.decode(spoilt, members) is None


def test_full_scale_sums_are_in_range() -> None:
    """All members at R, with rounding up in each, is still a sum; one step beyond is not."""
    point = FixedPoint(1.0)
    shares = [1 / 3] * 3
    words = sum(
        (point.encode(np.full(4, 1.0, np.float32), s) for s in shares),
        np.zeros(4 + CHECK_WORDS, np.uint32),
    )
    assert [1.0] * 4 == point.decode(words, 3).tolist()  # type: ignore[union-attr]
    words[0] = 2**30 + 3
    assert point.decode(words, 3) is None


def test_values_beyond_r_are_clipped() -> None:
    """A member that reports too small a peak loses what lies beyond, and no other member does."""
    point = FixedPoint(1.0)
    decoded = point.decode(point.encode(np.array([7, -7, 0.5], np.float32), 1.0), 1)
    assert decoded is not None
    assert [1.0, -1.0, 0.5] == decoded.tolist()
