"""What buckets made with a stop-list find, measured: their collision curve is no function of S, for
two supports may share what is left of them or not, whatever they share in all.

Draws pairs of models at all similarities, and makes a curve of what is found out about them. It
reads no model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from modelkin.core.sketching.signature import jaccard_estimates

__all__ = ["STEPS", "Pairs", "curve"]

STEPS = 20
"""Steps from S = 0 to S = 1; the curve has a point at each and at both ends."""
_KEPT = 2
"""Pairs that are kept of each model asked for and step of S."""
_NEAR = 0.05 + 1e-9
"""How far from a point S may be to count there."""
_ENOUGH = 5
"""Fewer pairs than this tell nothing of their S."""

Values = npt.NDArray[np.unsignedinteger]


class Pairs:
    """Pairs of some models and others, drawn evenly over S while all models pass by once.

    Args:
        of: signatures of the models that are paired, shape ``(num_perm,)``, by their ids.
        seed: of what is drawn.
    """

    def __init__(self, of: Mapping[int, Values], seed: int) -> None:
        self._of = of
        self._random = np.random.default_rng(seed)
        self._kept: defaultdict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)

    def see(self, ids: Sequence[int], values: npt.NDArray[np.unsignedinteger]) -> None:
        """Some more models: their ids, and their signatures, shape ``(n, num_perm)``."""
        for asked, own in self._of.items():
            estimates = jaccard_estimates(values, own)
            steps = np.rint(STEPS * 2.0 * estimates / (1.0 + estimates)).astype(np.int64)
            lots = self._random.random(len(ids))
            for at in _first_of_each(steps, lots):
                if ids[at] != asked:
                    self._keep((asked, int(steps[at])), (float(lots[at]), ids[at]))

    def drawn(self) -> list[tuple[int, int]]:
        """The pairs, each once, grouped by the model that was asked for."""
        pairs = {
            frozenset((asked, other)): (asked, other)
            for (asked, _), kept in self._kept.items()
            for _, other in kept
        }
        return sorted(pairs.values())

    def _keep(self, place: tuple[int, int], drawn: tuple[float, int]) -> None:
        self._kept[place] = sorted([*self._kept[place], drawn])[:_KEPT]


def curve(found: Iterable[tuple[float, float]]) -> tuple[float | None, ...]:
    """What is found of the models at each S, or beyond it where fewer of those are found.

    Args:
        found: for each pair its S, and the probability that one finds the other.

    Returns:
        At 0, .05, ... 1; None where nearly nobody was near.
    """
    pairs = np.array(list(found), np.float64).reshape(-1, 2)
    points: list[float | None] = []
    least = 1.0
    for step in reversed(range(STEPS + 1)):
        near = np.abs(pairs[:, 0] - step / STEPS) <= _NEAR
        if np.count_nonzero(near) < _ENOUGH:
            points.append(None)
            continue
        least = min(least, float(pairs[near, 1].mean()))
        points.append(least)
    return tuple(reversed(points))


def _first_of_each(steps: npt.NDArray[np.int64], lots: npt.NDArray[np.float64]) -> list[int]:
    """The places of the lowest lots of each step, as many as are kept."""
    order = np.lexsort((lots, steps))
    ordered = steps[order]
    begins = np.searchsorted(ordered, ordered)
    first: list[int] = order[np.arange(order.size) - begins < _KEPT].tolist()
    return first
