"""``Rounding``: scores in steps, in place of similarities that would give supports away.

A similarity is rounded up or down at random, more likely to the nearer step. The random number is a
keyed hash of the query and the model: to ask again gives the same score, and another query gives
another number. With a fixed rounding, a query just below a step would show with each index that is
added to it whether the model has that index, too.

The threshold, the order and the end of an answer all follow the scores, and ties go by name. So
they say nothing of a similarity that its score does not say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from modelkin.types.public import PublicNeighbor
from modelkin.types.search import Neighbor

__all__ = ["Rounding", "scored"]

_HASH_BYTES = 8


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
        """The score of a model, in steps: the mean over all secrets is the similarity."""
        drawn = hashlib.blake2b(model.encode(), key=self._key, digest_size=_HASH_BYTES).digest()
        uniform = int.from_bytes(drawn, "big") / 2 ** (8 * _HASH_BYTES)
        return min(self._steps, int(similarity * self._steps + uniform))


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
        whole: whether there are no other models. If there are, their scores are at most one step
            above that of the last one here, and those are left out: which of them are here follows
            their similarities.
    """
    scores = [(rounding(item.model, item.similarity), item.model) for item in nearest]
    least = floor * steps - 1e-9
    safe = least if whole or not scores else max(least, scores[-1][0] + 2)
    shown = sorted((-score, model) for score, model in scores if score >= safe)
    items = tuple(PublicNeighbor(model, -score / steps) for score, model in shown[:k])
    return items, safe > least and len(items) < k
