"""Merges: whether a checkpoint is an average of two models, and how near it is to each.

Two models of one origin stand at an angle to each other, and a line has one key in both with a
probability of about ``exp(-c r angle)``. So the logarithm of the share of lines that are found
tells the angle, up to c, which is 1.8 to 2.2 and one for all lines of a length. Angles to an
average add up to the one between its two models, and ``d_B / (d_A + d_B)`` is the share of A. A
sibling of both, their base, and an average with a third one lie off that line.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.lines import members_of_key
from modelkin.core.fingerprints.relations.positions import Position, position_of

__all__ = ["Merge", "merge_of"]

_STRETCH: Final = (0.94, 1.05)
"""What the two distances of an average are, of the distance between its two models. Linear and
spherical ones have .98 to 1.03, averages of three 1.08 to 1.15, snapshots of one training 1.1 and
more, the common base 1.4, siblings 2."""
_REACH: Final = 0.93
"""The most that either distance is of it. A model that was merely changed a little lies beside one
of the two, and as far from the other as that one."""
_UNEVEN: Final = 0.1
"""How far the shares of kinds and of layers are from that of the whole: an average has one share
everywhere, and what was put together of whole tensors has 0 and 1."""
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
        unevenness: how far the shares of kinds of tensors, or of layers, are from ``share``.
    """

    share: float
    stretch: float
    reach: float
    unevenness: float

    @property
    def is_average(self) -> bool:
        """Whether it is an average of the two."""
        is_straight = _STRETCH[0] <= self.stretch <= _STRETCH[1]
        return is_straight and self.reach <= _REACH and self.unevenness <= _UNEVEN


def merge_of(checkpoint: Fingerprint, first: Fingerprint, second: Fingerprint) -> Merge | None:
    """How a checkpoint lies to two models; None where too few lines are found to tell.

    Values that were rounded to few bits hide it: read shares of checkpoints of 8 bits or more.
    """
    scale = max(checkpoint.scale, first.scale, second.scale)
    own, a, b = (each.at(scale) for each in (checkpoint, first, second))
    by_kind, by_layer = _Strata(own, _kind), _Strata(own, _layer)
    of_first = _Strata(a, _kind)
    apart = of_first.mean(of_first.distances(b))
    parts = [by_kind.mean(by_kind.distances(each)) for each in (a, b)]
    if not apart or sum(parts) <= 0:
        return None
    share = parts[1] / sum(parts)
    uneven = max(each.unevenness(a, b, share) for each in (by_kind, by_layer))
    return Merge(share, sum(parts) / apart, max(parts) / apart, uneven)


def _kind(position: Position) -> Hashable:
    return position.stack, position.kind


def _layer(position: Position) -> Hashable:
    return (position.stack, position.layer) if position.stack else position.kind


class _Strata:
    """The keys of a fingerprint in parts: kinds of tensors or layers, and lines of one length.

    An adapter changes some kinds and leaves the others, so that each has its own distance.
    """

    def __init__(self, of: Fingerprint, part: Callable[[Position], Hashable]) -> None:
        names = dict[Hashable, int]()
        parts = (part(position_of(tensor.name)) for tensor in of.tensors)
        numbers = np.array([names.setdefault(each, len(names)) for each in parts], np.int64)
        pairs = np.stack([of.lengths.astype(np.int64), numbers[of.owners]])
        strata, self._of_key = np.unique(pairs, axis=1, return_inverse=True)
        self._keys = of.keys
        self._counts = np.bincount(self._of_key, minlength=strata.shape[1])
        self._members = np.array([members_of_key(length) for length in strata[0].tolist()])
        self._weights = np.where(self._counts >= _LEAST_KEYS, self._counts, 0)

    def distances(self, other: Fingerprint) -> Distances:
        """How far each part is from another fingerprint."""
        found = self._of_key[np.isin(self._keys, other.distinct)]
        hits = np.bincount(found, minlength=len(self._counts))
        distances: Distances = -np.log(np.maximum(hits, 0.5) / self._counts) / self._members
        return distances

    def mean(self, distances: Distances) -> float:
        """The mean over all keys; 0 where no part has enough."""
        return float((self._weights * distances).sum() / max(1, self._weights.sum()))

    def unevenness(self, first: Fingerprint, second: Fingerprint, share: float) -> float:
        """How far the shares of parts are from that of the whole, on average over the distances."""
        to_first, to_second = self.distances(first), self.distances(second)
        both = to_first + to_second
        total = self.mean(both)
        return self.mean(np.abs(to_second - share * both)) / total if total else 0.0
