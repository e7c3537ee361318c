"""The end of a selection, from histograms of float bits alone and in exact integers.

Non-negative float32 order like their bits. A first histogram over the upper halves of the bits
finds the *bin* in which the K-th largest entry lies, a second one over the lower halves within that
bin finds the entry itself: two passes, no sorting, no memory that grows with M. Masses are exact
integers in units of 2^-149, the smallest positive float32, so no order of summation can move K.

This module never reads an array of importance: the caller makes the two histograms, on any device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

__all__ = [
    "BINS",
    "INVALID",
    "Counts",
    "Threshold",
    "locate_count",
    "locate_coverage",
    "taken_mass",
    "total_mass",
]

Counts = npt.NDArray[np.int64]
"""A histogram over 65,536 halves of float32 bits."""

BINS = 1 << 16
INVALID = 0x7F80
"""The first upper half of infinity and NaN; the negative floats follow from 0x8000 on."""

_UPPER = np.arange(INVALID, dtype=np.int64)
_LEADING = (_UPPER >= 1 << 7).astype(np.int64) << 23
"""The implicit bit of a normal float's 24-bit mantissa, for every upper half."""
_MANTISSA = _LEADING | (_UPPER & 0x7F) << 16
"""The mantissa of the least float of every upper half."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A selection: all entries above ``bits``, and the first ``ties`` of those that equal it.

    Attributes:
        bits: a positive float32 as uint32, which orders as the floats do.
        ties: how many entries that equal it are selected, at least 1.
        k: how many entries are selected in all.
        partial: whether some entries that equal it are left out.
    """

    bits: int
    ties: int
    k: int
    partial: bool


@dataclass(frozen=True, slots=True)
class _Crossing:
    upper: int
    """The upper half of the bits of the last entry taken."""
    above: int
    """How many entries have a greater upper half."""
    rest: int
    """The rest to select within the bin: entries, or mass in units of its exponent."""


def locate_count(counts: Counts, k: int, within: Callable[[int], Counts]) -> Threshold | None:
    """The threshold of the ``k`` largest positive entries, or of all where they are fewer.

    Args:
        counts: how many entries have each upper half; those from ``INVALID`` on are ignored (-0.0
            may be there).
        k: at least 1.
        within: makes the histogram over the lower halves of one upper half.

    Returns:
        None where no entry is positive.
    """
    reached = np.cumsum(counts[:INVALID][::-1])
    at = min(int(np.searchsorted(reached, k)), INVALID - 1)
    upper = INVALID - 1 - at
    above = int(reached[at - 1]) if at else 0
    return _count_threshold(_Crossing(upper, above, k - above), within(upper))


def locate_coverage(
    counts: Counts, low: Counts, coverage: Fraction, k_max: int, within: Callable[[int], Counts]
) -> Threshold | None:
    """The threshold of the fewest largest entries whose mass is ``coverage`` of all.

    The K* of Algorithm 1: the smallest K with (mass of the top K) >= coverage * (mass of all),
    decided exactly.

    Args:
        counts: as in :func:`locate_count`.
        low: for each upper half the sum of the lower halves of its entries.
        coverage: in (0, 1].
        k_max: the most entries that may be taken, at least 1.
        within: as in :func:`locate_count`.

    Returns:
        None where no entry is positive.
    """
    target = -(-total_mass(counts, low) * coverage.numerator // coverage.denominator)
    if target == 0:
        return None
    crossing = _crossing_by_mass(counts, low, target)
    if crossing.above >= k_max:
        return locate_count(counts, k_max, within)
    bin_counts = within(crossing.upper)
    threshold = _mass_threshold(crossing, bin_counts)
    if threshold.k > k_max:  # above < k_max < k: the cap falls into the same bin
        capped = _Crossing(crossing.upper, crossing.above, k_max - crossing.above)
        return _count_threshold(capped, bin_counts)
    return threshold


def total_mass(counts: Counts, low: Counts) -> int:
    """The exact sum of all entries, in units of 2^-149."""
    return sum(
        mass << _shift(exponent) for exponent, mass in enumerate(_exponent_masses(counts, low))
    )


def taken_mass(threshold: Threshold, counts: Counts, low: Counts, within: Counts) -> int:
    """The exact sum of the entries that a threshold takes, in units of 2^-149.

    Args:
        threshold: located in these histograms.
        counts: as in :func:`locate_coverage`.
        low: as in :func:`locate_coverage`.
        within: the histogram over the lower halves of the threshold's own upper half.
    """
    upper, lower = divmod(threshold.bits, BINS)
    inside = within.copy()
    inside[:lower] = 0
    above = int(counts[upper + 1 : INVALID].sum() + inside[lower + 1 :].sum())
    inside[lower] = threshold.k - above
    taken, taken_low = counts.copy(), low.copy()
    taken[:upper] = taken_low[:upper] = 0
    taken[upper] = inside.sum()
    taken_low[upper] = inside @ np.arange(BINS)
    return total_mass(taken, taken_low)


def _shift(exponent: int) -> int:
    """A mantissa under this biased exponent counts ``2**shift`` units."""
    return max(exponent - 1, 0)


def _bin_masses(counts: Counts, low: Counts) -> Counts:
    """Each bin's mass in units of its exponent; below 2^63 for up to 2^38 entries."""
    return counts[:INVALID] * _MANTISSA + low[:INVALID]


def _exponent_masses(counts: Counts, low: Counts) -> list[int]:
    return [int(mass) for mass in _bin_masses(counts, low).reshape(-1, 128).sum(axis=1)]


def _crossing_by_mass(counts: Counts, low: Counts, target: int) -> _Crossing:
    """The bin in which the mass from the top reaches ``target``, which is 1 to all of it."""
    masses = _exponent_masses(counts, low)
    exponent = len(masses) - 1
    while masses[exponent] << _shift(exponent) < target:
        target -= masses[exponent] << _shift(exponent)
        exponent -= 1
    # Within one exponent all masses are multiples of one unit: rounding up to it changes nothing.
    rest = -(-target >> _shift(exponent))
    bins = slice(exponent * 128, exponent * 128 + 128)
    descending = _bin_masses(counts, low)[bins][::-1]
    reached = np.cumsum(descending)
    at = int(np.searchsorted(reached, rest))
    upper = exponent * 128 + 127 - at
    return _Crossing(
        upper=upper,
        above=int(counts[upper + 1 : INVALID].sum()),
        rest=rest - int(reached[at] - descending[at]),
    )


def _count_threshold(crossing: _Crossing, within: Counts) -> Threshold | None:
    positive = within.copy()
    if crossing.upper == 0:
        positive[0] = 0  # zeros are never taken
    reached = np.cumsum(positive[::-1])
    rest = min(crossing.rest, int(reached[-1]))
    if rest == 0:  # nothing positive in the bin of the zeros: all above is all there is
        return (
            Threshold(bits=1, ties=1, k=crossing.above, partial=False) if crossing.above else None
        )
    at = int(np.searchsorted(reached, rest))
    equal = int(positive[BINS - 1 - at])
    ties = rest - (int(reached[at]) - equal)
    return Threshold(
        bits=crossing.upper << 16 | (BINS - 1 - at),
        ties=ties,
        k=crossing.above + rest,
        partial=ties < equal,
    )


def _mass_threshold(crossing: _Crossing, within: Counts) -> Threshold:
    lower = np.arange(BINS, dtype=np.int64)[::-1]
    descending = within[::-1]
    mantissas = _MANTISSA[crossing.upper] + lower
    reached = np.cumsum(descending * mantissas)
    at = int(np.searchsorted(reached, crossing.rest))
    equal, mantissa = int(descending[at]), int(mantissas[at])
    ties = -(-(crossing.rest - int(reached[at]) + equal * mantissa) // mantissa)
    return Threshold(
        bits=crossing.upper << 16 | int(lower[at]),
        ties=ties,
        k=crossing.above + int(descending[:at].sum()) + ties,
        partial=ties < equal,
    )
