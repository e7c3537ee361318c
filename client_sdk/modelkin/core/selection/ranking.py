"""``Ranking``: the histograms of one importance, each computed once, and the thresholds they give.

Several selections from one importance (a K and the next ones, a coverage and its mass) share one
pass over it. This module never holds an index.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

from modelkin.core.selection import radix
from modelkin.core.selection.entries import Entries

__all__ = ["Ranking"]

_SIGN = 0x8000
"""The upper half of -0.0 and of the least negative floats."""


class Ranking:
    """The entries of an importance in the order of their size, from histograms alone."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self._within: dict[int, radix.Counts] = {}

    def top(self, k: int) -> radix.Threshold | None:
        """The threshold of the k largest positive entries, or of all; None if no entry is positive.

        Raises:
            InvalidImportance: an entry is NaN, infinite or negative.
        """
        counts = self._counts
        return radix.locate_count(counts, k, self._lower_halves) if k else None

    def covering(self, coverage: Fraction, k_max: int) -> radix.Threshold | None:
        """The K* of Algorithm 1, at most ``k_max``; raises what :meth:`top` does."""
        counts, low = self._masses
        return radix.locate_coverage(counts, low, coverage, k_max, self._lower_halves)

    def mass(self) -> int:
        """The exact sum of all entries in units of 2^-149; raises what :meth:`top` does."""
        return radix.total_mass(*self._masses)

    def mass_of(self, threshold: radix.Threshold) -> int:
        """The exact sum of the entries that a threshold selects, in units of 2^-149."""
        upper = self._lower_halves(threshold.bits >> 16)
        return radix.taken_mass(threshold, *self._masses, upper)

    @cached_property
    def _masses(self) -> tuple[radix.Counts, radix.Counts]:
        counts, low = self.entries.histogram_mass()
        self._check(counts)
        return counts, low

    @cached_property
    def _counts(self) -> radix.Counts:
        if "_masses" in self.__dict__:
            return self._masses[0]
        counts = self.entries.histogram()
        self._check(counts)
        return counts

    def _lower_halves(self, upper: int) -> radix.Counts:
        if upper not in self._within:
            self._within[upper] = self.entries.histogram_within(upper)
        return self._within[upper]

    def _check(self, counts: radix.Counts) -> None:
        """Refuse entries that the histogram shows as NaN, infinite or negative; -0.0 is zero."""
        suspect = counts[radix.INVALID :].copy()
        if suspect[_SIGN - radix.INVALID]:
            suspect[_SIGN - radix.INVALID] -= self._lower_halves(_SIGN)[0]
        if suspect.any():
            raise self.entries.refusal()
