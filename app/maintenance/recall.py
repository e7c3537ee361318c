"""The measured recall of buckets made with a stop-list.

Under a stop-list the collision probability is not a function of S: two supports with the same S
may share all of their filtered indices, or few. So this module samples pairs of models at all
similarities, and turns the measurements into a curve. It reads no model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from modelkin.core.sketching.signature import jaccard_estimates

__all__ = ["STEPS", "PairSampler", "recall_curve"]

STEPS = 20
"""Steps from S = 0 to S = 1; the curve has a point at each step and at both ends."""
_PAIRS_PER_STEP = 2
"""Pairs that are kept for each query model and step of S."""
_STEP_TOLERANCE = 0.05 + 1e-9
"""The largest distance of S from a point at which a pair counts there."""
_MIN_PAIRS = 5
"""A point with fewer pairs has no estimate."""

Values = npt.NDArray[np.unsignedinteger]


class PairSampler:
    """A sample of pairs, even over S, drawn in one pass over all models.

    Args:
        of: signatures of the query models, shape ``(num_perm,)``, by their ids.
        seed: of the random draws.
    """

    def __init__(self, of: Mapping[int, Values], seed: int) -> None:
        self._of = of
        self._random = np.random.default_rng(seed)
        self._kept: defaultdict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)

    def add(self, ids: Sequence[int], values: npt.NDArray[np.unsignedinteger]) -> None:
        """Take in more models: their ids, and their signatures, shape ``(n, num_perm)``."""
        for query, own in self._of.items():
            estimates = jaccard_estimates(values, own)
            steps = np.rint(STEPS * 2.0 * estimates / (1.0 + estimates)).astype(np.int64)
            draws = self._random.random(len(ids))
            for at in _lowest_per_step(steps, draws):
                if ids[at] != query:
                    self._keep((query, int(steps[at])), (float(draws[at]), ids[at]))

    def sampled(self) -> list[tuple[int, int]]:
        """The sampled pairs, each once, grouped by their query model."""
        pairs = {
            frozenset((query, other)): (query, other)
            for (query, _), kept in self._kept.items()
            for _, other in kept
        }
        return sorted(pairs.values())

    def _keep(self, place: tuple[int, int], sampled: tuple[float, int]) -> None:
        self._kept[place] = sorted([*self._kept[place], sampled])[:_PAIRS_PER_STEP]


def recall_curve(found: Iterable[tuple[float, float]]) -> tuple[float | None, ...]:
    """The share of models found at each S, or the share beyond it if that is smaller.

    Args:
        found: for each pair its S, and the probability that one finds the other.

    Returns:
        The recall at 0, .05, ... 1; None for a point with too few pairs.
    """
    pairs = np.array(list(found), np.float64).reshape(-1, 2)
    points: list[float | None] = []
    least = 1.0
    for step in reversed(range(STEPS + 1)):
        near = np.abs(pairs[:, 0] - step / STEPS) <= _STEP_TOLERANCE
        if np.count_nonzero(near) < _MIN_PAIRS:
            points.append(None)
            continue
        least = min(least, float(pairs[near, 1].mean()))
        points.append(least)
    return tuple(reversed(points))


def _lowest_per_step(steps: npt.NDArray[np.int64], draws: npt.NDArray[np.float64]) -> list[int]:
    """The positions of the lowest draws of each step."""
    order = np.lexsort((draws, steps))
    ordered = steps[order]
    begins = np.searchsorted(ordered, ordered)
    first: list[int] = order[np.arange(order.size) - begins < _PAIRS_PER_STEP].tolist()
    return first
