"""Ranking: how unlikely it is that a fingerprint and each of many have so many keys in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.chance import collision_probability
from modelkin.core.fingerprints.comparison import OVERDISPERSION

__all__ = ["Chance", "log10_bounds"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_LEAST: Final = 1e-300


@dataclass(frozen=True, eq=False)
class Chance:
    """How many keys of a fingerprint strangers are expected to have.

    Attributes:
        lengths: the lengths of its lines, ascending.
        weights: the expected common lines with one line of each length.
    """

    lengths: npt.NDArray[np.uint32]
    weights: Floats

    @classmethod
    def of(cls, lines: Mapping[int, int]) -> Chance:
        """That of a fingerprint with so many lines of each length."""
        ordered = sorted(lines)
        weights = [OVERDISPERSION * lines[each] * collision_probability(each) for each in ordered]
        return cls(np.array(ordered, np.uint32), np.array(weights, np.float64))

    def lines_in_common(self, owner: Ints, lines: npt.NDArray[Any], owners: int) -> Floats:
        """The common lines that are expected with each of several strangers, before any sample.

        Args:
            owner: the stranger of each of ``lines``, from 0 on.
            lines: of ``LINES``.
            owners: how many strangers there are.
        """
        if not self.lengths.size:
            return np.zeros(owners)
        at = np.minimum(np.searchsorted(self.lengths, lines["length"]), self.lengths.size - 1)
        same = self.lengths[at] == lines["length"]
        expected = np.where(same, self.weights[at] * lines["count"], 0.0)
        return np.bincount(owner, expected, minlength=owners).astype(np.float64)


def log10_bounds(counts: Ints, expected: Floats) -> Floats:
    """Bounds of the logarithms of the probabilities of so many common keys, or more, by chance.

    They are hardly above the true ones where more was found than expected, and 0 elsewhere: the
    terms of the sum fall at least as fast as those of a geometric one.
    """
    expected = np.maximum(expected, _LEAST)
    above = counts > expected
    factorials = np.cumsum(np.log(np.maximum(np.arange(int(counts.max(initial=0)) + 1), 1)))
    first = counts * np.log(expected) - expected - factorials[counts]
    ratio = np.where(above, expected / (counts + 1), 0.0)
    bounds: Floats = np.where(above, (first - np.log1p(-ratio)) / np.log(10), 0.0)
    return np.minimum(bounds, 0.0)
