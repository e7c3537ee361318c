"""``Rounding``: scores in steps, in place of similarities that would give supports away.

Before it is rounded, a similarity gets noise: the sum of two uniform numbers, each of a step's
width. They are a keyed hash of the query and the model. So to ask again gives the same score, and
another query has noise of its own. Without noise, a query just below a step would show with each
index that is added to it whether the model has that index, too. With one uniform number, a query at
a step would still show it with certainty, now and then. The sum of two has no such place: of the
similarity x, in steps, a score has a Fisher information of 4 to 6 wherever x is. (It is the
triangular dither of digital audio: Lipshitz, Wannamaker and Vanderkooy, 1992.)

The threshold, the order and the end of an answer all follow the scores, and ties go by name. So
they say nothing of a similarity that its score does not say.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from modelkin.types.public import PublicNeighbor
from modelkin.types.search import Neighbor

__all__ = ["Rounding", "scored"]

_LARGEST = 2**64
_SPREAD = 3
"""Steps by which models may trade places, at most: a score is less than 1.5 of them off."""


class Rounding:
    """Rounds similarities of one query to steps.

    Args:
        steps: how many of them make 1.
        secret: of the installation; no caller knows it.
        query: all that is compared of the query, in one form whatever it came in.
    """

    def __init__(self, steps: int, secret: bytes, query: bytes) -> None:
        self._steps = steps
        self._key = hashlib.blake2b(query, key=secret, digest_size=32).digest()

    def __call__(self, model: str, similarity: float) -> int:
        """The score of a model, in steps; its mean over all secrets is the similarity."""
        drawn = hashlib.blake2b(model.encode(), key=self._key, digest_size=16).digest()
        one, other = (int.from_bytes(half, "big") for half in (drawn[:8], drawn[8:]))
        noise = one / _LARGEST + other / _LARGEST - 0.5
        return min(self._steps, max(0, math.floor(similarity * self._steps + noise)))


def scored(
    nearest: Sequence[Neighbor],
    rounding: Rounding,
    *,
    steps: int,
    floor: float,
    k: int,
    whole: bool,
) -> tuple[tuple[PublicNeighbor, ...], bool]:
    """The ``k`` models of the largest scores, and whether others may have scores as large.

    Args:
        nearest: the nearest models, best first.
        steps: how many of them make 1.
        floor: the least score that is shown.
        whole: whether there are no other models. If there are, their scores may be up to two steps
            above that of the last one here, and those are left out: which of them are here follows
            their similarities.
    """
    scores = [(rounding(item.model, item.similarity), item.model) for item in nearest]
    least = floor * steps - 1e-9
    safe = least if whole or not scores else max(least, scores[-1][0] + _SPREAD)
    shown = sorted((-score, model) for score, model in scores if score >= safe)
    items = tuple(PublicNeighbor(model, -score / steps) for score, model in shown[:k])
    return items, safe > least and len(items) < k
