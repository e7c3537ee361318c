"""``Rounding``: scores in steps, in place of similarities that would give supports away.

Before it is rounded, a similarity gets noise: the sum of two uniform numbers, each of a step's
width. They are a keyed hash of the space, the query and the content of the model. So to ask again
gives the same score, a copy of a model under another name has the same, and another query has noise
of its own. So has another space: no tenant learns the noise of a space from one of its own.

Without noise, a query just below a step would show with each index that is added to it whether the
model has that index, too. With one uniform number, a query at a step would still show it with
certainty, now and then. The sum of two has no such place: of the similarity x, in steps, a score
has a Fisher information of 4 to 6 wherever x is. (It is the triangular dither of digital audio:
Lipshitz, Wannamaker and Vanderkooy, 1992.)

The threshold, the order and the end of an answer all follow the scores, and ties go by name. So
they say nothing of a similarity that its score does not say.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

from modelkin.types.public import PublicNeighbor
from modelkin.types.search import Neighbor

__all__ = ["Rounding", "scored"]

_EPSILON = 1e-9
"""More than the rounding errors of floats."""
_LARGEST = 2**64
_SPREAD = 3
"""Steps by which models may trade places: a score is 1.5 of them off at most."""


class Rounding:
    """Rounds similarities of one query to steps.

    Args:
        steps: how many of them make 1.
        secret: of the installation; no caller knows it.
        space_id: of the space that is asked.
        query: all that is compared of the query, in one form whatever it came in.
    """

    def __init__(self, steps: int, secret: bytes, space_id: int, query: bytes) -> None:
        self._steps = steps
        space = space_id.to_bytes(16, "big")
        self._key = hashlib.blake2b(query, key=secret, person=space, digest_size=32).digest()

    def __call__(self, content: bytes, similarity: float) -> int:
        """The score of a model, in steps.

        Its mean over all secrets is the similarity, from half a step to half a step below 1.

        Args:
            content: what distinguishes the support or signature of the model from all others.
            similarity: to the query.
        """
        drawn = hashlib.blake2b(content, key=self._key, digest_size=16).digest()
        one, other = (int.from_bytes(half, "big") for half in (drawn[:8], drawn[8:]))
        noise = one / _LARGEST + other / _LARGEST - 0.5
        return min(self._steps, max(0, math.floor(similarity * self._steps + noise)))


def scored(
    nearest: Sequence[Neighbor],
    contents: Mapping[str, bytes],
    rounding: Rounding,
    *,
    steps: int,
    least: int,
    k: int,
    slack: float | None,
) -> tuple[tuple[PublicNeighbor, ...], bool]:
    """The ``k`` models of the largest scores, and whether others from the floor on are left out.

    Args:
        nearest: the nearest models, best first.
        contents: of them, by name; a model without one is deleted and left out.
        steps: how many of them make 1.
        least: score that is shown, in steps.
        slack: by how much a model that is not here may be more similar than the last one that is;
            None if there are no others. If there are, their scores may be up to three steps above
            that of the last one, and the slack. Models of such scores are left out: which of them
            are here follows their similarities.
    """
    scores = [
        (rounding(contents[item.model], item.similarity), item.model)
        for item in nearest
        if item.model in contents
    ]
    safe = least
    if slack is not None and scores:
        safe = max(least, scores[-1][0] + _SPREAD + math.ceil(slack * steps - _EPSILON))
    shown = sorted((-score, model) for score, model in scores if score >= safe)
    items = tuple(PublicNeighbor(model, -score / steps) for score, model in shown[:k])
    return items, safe > least
