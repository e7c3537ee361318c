"""Merges: whether a checkpoint is an average of two models, and how near it is to each.

Two models of one origin stand at an angle to each other, and a line has one key in both with a
probability of about ``exp(-c r angle)``. So the logarithm of the share of lines that are found
tells the angle, up to c, which is 1.8 to 2.2 and one for all lines of a length. Angles to an
average add up to the one between its two models, and ``d_B / (d_A + d_B)`` is the share of A. A
sibling of both, their base, and an average with a third one lie off that line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.lines import members_of_key, present
from modelkin.core.fingerprints.relations.positions import Position, position_of

__all__ = ["Merge", "Merges", "merge_of"]

_STRETCH: Final = (0.94, 1.06)
"""What the two distances of an average are, of the distance between its two models. Linear and
spherical ones have 1.00 to 1.06, a light fine-tune between its base and a sibling 1.07, TIES and
DARE 1.7 and more, the common base and siblings 3. Snapshots of one training have 1.07 and more by
all keys. By one in 16 neighbours in time have down to 1.04, so 4 of 360 are told as averages."""
_REACH: Final = 0.93
"""The most that either distance is of it. A model that was merely changed a little lies beside one
of the two, and as far from the other as that one."""
_LEAST_SHARE: Final = 0.05
"""The least share of either model: a base that has some rows less than a derivative has 2% of any
other derivative."""
_DEVIATIONS: Final = 3.5
"""How many standard deviations of luck it has more lines of each than the other has."""
_UNEVEN: Final = 0.1
"""How far the shares of kinds and of layers are from that of the whole: an average has one share
everywhere, and what was put together of whole tensors has 0 and 1."""
_OF_LEAST: Final = 0.5
"""How far, of the lesser of the two shares: where that is small, all parts have nearly none. Linear
and spherical averages have at most .34, a model put together of a stranger's layers 1."""
_LEAST_KEYS: Final = 32
"""Keys of a kind and a length that tell a distance."""

Distances = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Merge:
    """How a checkpoint lies to two models.

    Attributes:
        share: that of the first model, 0 to 1; the second has the rest.
        stretch: the two distances, of the distance between the models: 1 for what lies straight
            between them.
        reach: the longer of the two, of that distance.
        unevenness: how far the shares of kinds of tensors, or of layers, are from ``share``; None
            of what does not lie straight between the two.
    """

    share: float
    stretch: float
    reach: float
    unevenness: float | None

    @property
    def is_average(self) -> bool:
        """Whether it is an average of the two."""
        least = min(self.share, 1 - self.share)
        if self.unevenness is None or least < _LEAST_SHARE:
            return False
        return self.unevenness <= min(_UNEVEN, _OF_LEAST * least)


def merge_of(checkpoint: Fingerprint, first: Fingerprint, second: Fingerprint) -> Merge | None:
    """How a checkpoint lies to two models; None where too few lines are found to tell.

    Values that were rounded to few bits hide it: read shares of checkpoints of 8 bits or more.
    """
    return Merges(checkpoint, (first, second)).of(0, 1)


class Merges:
    """How a checkpoint lies to each two of several models; what pairs have in common is kept.

    Args:
        checkpoint: its fingerprint.
        models: those of the models.
    """

    def __init__(self, checkpoint: Fingerprint, models: Sequence[Fingerprint]) -> None:
        self._all = (checkpoint, *models)
        self._strata: dict[tuple[int, int], _Strata] = {}
        self._distances: dict[tuple[int, int, int], Distances] = {}

    def of(self, first: int, second: int) -> Merge | None:
        """How it lies to two of them, by their numbers; as :func:`merge_of`."""
        numbers = (0, first + 1, second + 1)
        scale = max(self._all[number].scale for number in numbers)
        own = self._of(0, scale)
        to_first, to_second = (self._between(0, number, scale) for number in numbers[1:])
        parts = own.mean(to_first), own.mean(to_second)
        ways = [self._apart(0, number, scale) for number in numbers[1:]]
        apart = self._apart(*numbers[1:], scale)
        if not apart or sum(parts) <= 0:
            return None
        share, stretch, reach = parts[1] / sum(parts), sum(ways) / apart, max(ways) / apart
        is_straight = _STRETCH[0] <= stretch <= _STRETCH[1] and reach <= _REACH
        if not (is_straight and self._is_between(numbers[1], numbers[2], scale)):
            return Merge(share, stretch, reach, None)
        by_kinds = own.unevenness(to_first, to_second, share)
        layers = _Strata(own.of, _layer)
        to_first, to_second = (
            layers.distances(self._of(number, scale).of) for number in numbers[1:]
        )
        by_layers = layers.unevenness(to_first, to_second, share)
        return Merge(share, stretch, reach, max(by_kinds, by_layers))

    def _is_between(self, first: int, second: int, scale: int) -> bool:
        """Whether it has more lines of each model than the other model has, beyond luck."""
        own = self._of(0, scale).of.distinct
        a, b = (self._of(number, scale).of.distinct for number in (first, second))
        common = a[present(a, b)]
        for model in (a, b):
            nearer = own[present(own, model)]
            both = int(present(nearer, common).sum())
            gained, lost = nearer.size - both, common.size - both
            if gained - lost < _DEVIATIONS * math.sqrt(gained + lost):
                return False
        return True

    def _apart(self, one: int, other: int, scale: int) -> float:
        """How far two models are from each other: the mean of the distances from either.

        Each has lines of its own, as of tokens that one adds, so these differ. A single one put a
        fine-tune between a sibling and a rounded base, and half of all averages off the line.
        """
        ways = (one, other), (other, one)
        return sum(self._of(a, scale).mean(self._between(a, b, scale)) for a, b in ways) / 2

    def _of(self, number: int, scale: int) -> _Strata:
        key = number, scale
        if key not in self._strata:
            self._strata[key] = _Strata(self._all[number].at(scale), _kind)
        return self._strata[key]

    def _between(self, one: int, other: int, scale: int) -> Distances:
        key = one, other, scale
        if key not in self._distances:
            self._distances[key] = self._of(one, scale).distances(self._of(other, scale).of)
        return self._distances[key]


def _kind(position: Position) -> Hashable:
    return position.stack, position.kind


def _layer(position: Position) -> Hashable:
    return (position.stack, position.layer) if position.stack else position.kind


class _Strata:
    """The keys of a fingerprint in parts: kinds of tensors or layers, and lines of one length.

    An adapter changes some kinds and leaves the others, so that each has its own distance.
    """

    def __init__(self, of: Fingerprint, part: Callable[[Position], Hashable]) -> None:
        self.of = of
        names = dict[Hashable, int]()
        parts = (part(position_of(tensor.name)) for tensor in of.tensors)
        numbers = np.array([names.setdefault(each, len(names)) for each in parts], np.int64)
        codes = numbers[of.owners] << 32 | of.lengths.astype(np.int64)
        strata, self._of_key = np.unique(codes, return_inverse=True)
        self._counts = np.bincount(self._of_key, minlength=strata.size)
        lengths = (strata & 0xFFFFFFFF).tolist()
        self._members = np.array([members_of_key(length) for length in lengths], np.int64)
        self._weights = np.where(self._counts >= _LEAST_KEYS, self._counts, 0)

    def distances(self, other: Fingerprint) -> Distances:
        """How far each part is from another fingerprint."""
        found = self._of_key[present(self.of.keys, other.keys)]
        hits = np.bincount(found, minlength=len(self._counts))
        distances: Distances = -np.log(np.maximum(hits, 0.5) / self._counts) / self._members
        return distances

    def mean(self, distances: Distances) -> float:
        """The mean over all keys; 0 where no part has enough."""
        return float((self._weights * distances).sum() / max(1, self._weights.sum()))

    def unevenness(self, to_first: Distances, to_second: Distances, share: float) -> float:
        """How far the shares of parts are from that of the whole, on average over the distances."""
        both = to_first + to_second
        total = self.mean(both)
        return self.mean(np.abs(to_second - share * both)) / total if total else 0.0
