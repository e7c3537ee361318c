"""Merges: whether a checkpoint is an average of two models, and how near it is to each.

A set that differs from another in a share d of its members has a key in common with it with a
probability of about ``(1 - d)^r``. So the share of the lines that are found tells d. For an average
of A and B, ``d_B / (d_A + d_B)`` is the share of A, and the two distances are little more than the
one between A and B. A sibling of both has the same distances, and is not between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.lines import members_of_key

__all__ = ["AVERAGE", "Merge", "merge_of"]

AVERAGE: Final = 1.2
"""The most that the distances of an average are, of the distance between its two models. Linear
ones have 1.02 to 1.2, the more the further the two have moved apart; their common base has 1.5 and
more, and a sibling 2."""
_LEAST_KEYS: Final = 32
"""Keys of a length that tell a distance."""


@dataclass(frozen=True)
class Merge:
    """How a checkpoint lies to two models.

    Attributes:
        share: that of the first model, 0 to 1; the second has the rest.
        stretch: the two distances, of the distance between the models: 1 for what lies straight
            between them.
    """

    share: float
    stretch: float

    @property
    def is_average(self) -> bool:
        """Whether it is an average of the two."""
        return self.stretch <= AVERAGE


def merge_of(checkpoint: Fingerprint, first: Fingerprint, second: Fingerprint) -> Merge | None:
    """How a checkpoint lies to two models; None where too few lines are found to tell.

    Values that were rounded to few bits hide it: read shares of checkpoints of 8 bits or more.
    """
    scale = max(checkpoint.scale, first.scale, second.scale)
    own, a, b = (each.at(scale) for each in (checkpoint, first, second))
    distances = [_distance(own, a), _distance(own, b), _distance(a, b)]
    to_first, to_second, apart = distances
    if to_first is None or to_second is None or not apart:
        return None
    both = to_first + to_second
    return Merge(to_second / both if both else 0.5, both / apart)


def _distance(one: Fingerprint, other: Fingerprint) -> float | None:
    """The share of the members of a set that differ, over the lines of all lengths."""
    common = np.isin(one.keys, other.distinct)
    weighted, keys = 0.0, 0
    for length in np.unique(one.lengths).tolist():
        inside = one.lengths == length
        count = int(np.count_nonzero(inside))
        found = int(np.count_nonzero(common & inside))
        if count >= _LEAST_KEYS and found:
            distance = 1 - (found / count) ** (1 / members_of_key(length))
            weighted, keys = weighted + count * distance, keys + count
    return weighted / keys if keys else None
