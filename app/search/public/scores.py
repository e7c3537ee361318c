"""``Rounding``: scores in steps, in place of similarities that would give supports away.

Before it is rounded, a similarity gets noise: the sum of two uniform numbers, each of a step's
width. The numbers are a keyed hash of the space, the query and the content of the model. So the
same query gets the same score again, and so does a copy of a model under another name. Another
query has other noise. Another space has other noise, too: no tenant learns the noise of a space
from its own spaces.

Without noise, a caller could start just below a step and add an index: the score would show whether
the model has it. With one uniform number, a query at a step would still show this with certainty,
now and then. The sum of two numbers has no such place: about the similarity x, in steps, a score
has a Fisher information of 4 to 6 wherever x is. (It is the triangular dither of digital audio:
Lipshitz, Wannamaker and Vanderkooy, 1992.)

The threshold, the order and the end of an answer all follow the scores, and ties go by name. So an
answer says nothing about a similarity beyond its score.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

from modelkin.types.public import PublicNeighbor
from modelkin.types.search import Neighbor

__all__ = ["Rounding", "score"]

_EPSILON = 1e-9
"""A number larger than the rounding errors of floats."""
_LARGEST = 2**64
_SPREAD = 3
"""Steps by which models may trade places: a score is off by 1.5 steps at most."""


class Rounding:
    """Rounds similarities of one query to steps.

    Args:
        steps: the number of steps that make 1.
        secret: the installation's secret, which no caller knows.
        query: the compared content of the query, in one form however it was sent.
    """

    def __init__(self, steps: int, secret: bytes, space_id: int, query: bytes) -> None:
        self._steps = steps
        space = space_id.to_bytes(16, "big")
        self._key = hashlib.blake2b(query, key=secret, person=space, digest_size=32).digest()

    def __call__(self, content: bytes, similarity: float) -> int:
        """Return the score of a model, in steps.

        Its mean over all secrets is the similarity, from half a step to half a step below 1.

        Args:
            content: bytes that identify the support or signature of the model.
            similarity: the model's similarity to the query.
        """
        drawn = hashlib.blake2b(content, key=self._key, digest_size=16).digest()
        one, other = (int.from_bytes(half, "big") for half in (drawn[:8], drawn[8:]))
        noise = one / _LARGEST + other / _LARGEST - 0.5
        return min(self._steps, max(0, math.floor(similarity * self._steps + noise)))


def score(
    nearest: Sequence[Neighbor],
    contents: Mapping[str, bytes],
    rounding: Rounding,
    *,
    steps: int,
    least: int,
    k: int,
    slack: float | None,
) -> tuple[tuple[PublicNeighbor, ...], bool]:
    """Return the ``k`` models of the largest scores, and whether the answer leaves models out.

    Args:
        nearest: the nearest models, best first.
        contents: the contents of these models, by name; a model without one is deleted and left
            out.
        steps: the number of steps that make 1.
        least: the least score that is shown, in steps.
        slack: the most by which a model outside ``nearest`` may be more similar than the last one
            inside; None if no model is outside. Outside scores may exceed the last one's by the
            slack and three steps. Models with scores in that range are left out: their presence in
            ``nearest`` would depend on their similarities.
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
