"""A map of models: places in the plane at which the neighbours of a graph lie near each other.

Every edge pulls its two models together, and models drawn at random push each other apart, as in
UMAP (McInnes, Healy and Melville 2018), whose sums over single edges become sums over all edges of
a model. It begins with the slow modes of a random walk on the graph, so that the far parts of a
large graph need not cross each other. Parts without an edge between them are laid out on their own,
and packed like islands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.kinship.island_packing import pack_islands
from modelkin.core.similarity.nearest import Nearest

__all__ = ["connected_parts", "graph_layout", "neighbor_edges"]

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Sums = npt.NDArray[Any]
Report = Callable[[int, int], None]

_ROUNDS: Final = 300
_ROUNDS_OF_MANY: Final = 200
_MANY: Final = 20_000
"""The number of models from which on fewer rounds are made."""
_WALK_STEPS: Final = 100
"""Steps of the random walk whose slow modes are the start."""
_PUSHES: Final = 5
"""Models that push a model in a round, drawn again in each."""
_MAX_PUSH: Final = 4.0
_LEAST_WEIGHT: Final = 0.02
"""The weight of an edge that is no more similar than usual, where it is a model's nearest."""
_FULL_WEIGHT_QUANTILE: Final = 0.9
"""The quantile of the models' strongest edges: edges beyond it weigh 1."""
_LEAST_STRENGTH: Final = 0.2
"""The share of the usual sum of weights: a model with less is not pulled as fast."""
_START_SIZE: Final = 10.0
_REACH_QUANTILE: Final = 0.95
_REACH: Final = 0.85
"""The share of a part's models within so much of the radius of its island."""


def neighbor_edges(near: Nearest, usual: float) -> tuple[Rows, Floats]:
    """The edges of a graph of nearest neighbours, each once, and how much they pull.

    An edge weighs by how far its similarity exceeds the usual one. The nearest neighbour of a model
    stays an edge even if it does not, unless the two share nothing.

    Args:
        near: the nearest neighbours of n models.
        usual: the similarity of two models of the space.

    Returns:
        Pairs of rows, shape ``(e, 2)``, and weights above 0, shape ``(e,)``.
    """
    n, k = near.rows.shape
    best = np.zeros((n, k), np.bool_)
    best[np.arange(n), np.argmin(near.distances, axis=1)] = True
    similarity = 1.0 - near.distances.ravel()
    kept = (similarity > usual) | (best.ravel() & (similarity > 0))
    owners, others = np.repeat(np.arange(n), k)[kept], near.rows.ravel()[kept]
    keys = np.minimum(owners, others) * n + np.maximum(owners, others)
    pairs, first = np.unique(keys, return_index=True)
    excess = np.maximum(similarity[kept][first] - usual, 0.0)
    ends = np.stack(np.divmod(pairs, n), axis=1)
    return ends, _weights(n, ends, excess)


def _weights(n: int, ends: Rows, excess: npt.NDArray[np.float64]) -> Floats:
    """Weights up to 1, relative to the strongest edges of most models."""
    strongest = np.zeros(n)
    np.maximum.at(strongest, ends[:, 0], excess)
    np.maximum.at(strongest, ends[:, 1], excess)
    strongest = strongest[strongest > 0]
    full = float(np.quantile(strongest, _FULL_WEIGHT_QUANTILE)) if strongest.size else 1.0
    weights: Floats = np.clip(excess / full, _LEAST_WEIGHT, 1.0).astype(np.float32)
    return weights


def connected_parts(n: int, ends: Rows) -> Rows:
    """The part of each node: 0, 1, ... in the order of their first nodes, shape ``(n,)``."""
    part = np.arange(n)
    while True:
        least = np.minimum(part[ends[:, 0]], part[ends[:, 1]])
        new = part.copy()
        np.minimum.at(new, part[ends[:, 0]], least)
        np.minimum.at(new, part[ends[:, 1]], least)
        while not np.array_equal(new, shorter := new[new]):
            new = shorter
        if np.array_equal(new, part):
            return np.unique(part, return_inverse=True)[1].astype(np.int64)
        part = new


def graph_layout(
    n: int, ends: Rows, weights: Floats, seed: int = 0, report: Report | None = None
) -> Floats:
    """The places of n models; the same graph and seed give the same places.

    Args:
        n: how many models.
        ends: the ends of the edges, each once, shape ``(e, 2)``.
        weights: the weights of the edges, above 0 and up to 1, shape ``(e,)``.
        seed: an integer of 0 or more; the same graph and seed give the same places.
        report: called with the rounds that are done and those of all, at last with all done.

    Returns:
        x and y, shape ``(n, 2)``. A model takes about one unit of area.
    """
    part = connected_parts(n, ends)
    order = np.argsort(part, kind="stable")
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    graph = _Graph(part[order], rank[ends], weights)
    places = np.empty((n, 2), np.float32)
    places[order] = graph.islands(graph.settle(np.random.default_rng(seed), report))
    return places


class _Graph:
    """A graph whose nodes stand in the order of their parts.

    Args:
        part: the part of each node, ascending, shape ``(n,)``.
        ends: the ends of the edges, each once.
        weights: above 0 and up to 1, one an edge.
    """

    def __init__(self, part: Rows, ends: Rows, weights: Floats) -> None:
        self._n, self._part = part.size, part
        self._size = np.bincount(part)
        self._begin = np.cumsum(self._size) - self._size
        both = np.concatenate([ends, ends[:, ::-1]])
        order = np.lexsort((both[:, 1], both[:, 0]))
        self._from, self._to = both[order].T.astype(np.int32)
        self._weight = np.concatenate([weights, weights])[order]
        degree = np.bincount(self._from, minlength=self._n)
        self._linked = degree > 0
        self._first = (np.cumsum(degree) - degree)[self._linked]
        self._strength = self._sums(self._weight)

    def settle(self, rng: np.random.Generator, report: Report | None) -> Floats:
        """The places of each part around its own centre, in any unit, shape ``(2, n)``."""
        places = self._start(rng)
        if not self._first.size:
            return places
        usual = np.median(self._strength[self._linked])
        least = np.float32(_LEAST_STRENGTH * usual)
        pace = (1.0 / np.maximum(self._strength, least)).astype(np.float32)
        rounds = _ROUNDS if self._n < _MANY else _ROUNDS_OF_MANY
        for done in range(rounds):
            if report is not None:
                report(done, rounds)
            step = np.float32(1.0 - done / rounds)
            places += step * (self._pull(places) * pace + self._push(places, rng))
        if report is not None:
            report(rounds, rounds)
        return places

    def islands(self, places: Floats) -> Floats:
        """The places, each part within its island, shape ``(n, 2)``."""
        for axis in places:
            axis -= self._mean(axis)[self._part]
        far = np.hypot(*places)
        reach_at = self._begin + (_REACH_QUANTILE * (self._size - 1)).astype(np.int64)
        reach = far[np.lexsort((far, self._part))][reach_at]
        centres, radii = pack_islands(self._size)
        scale = (_REACH * radii / np.maximum(reach, 1e-6))[self._part]
        scale = np.minimum(scale, radii[self._part] / np.maximum(far, 1e-6))
        placed: Floats = (centres[self._part] + (places * scale).T).astype(np.float32)
        return placed

    def _start(self, rng: np.random.Generator) -> Floats:
        """The two slowest modes of a lazy random walk on each part, nearly."""
        places = rng.standard_normal((2, self._n)).astype(np.float32)
        mass = np.maximum(self._strength, np.float32(1e-6))
        whole: Sums = np.bincount(self._part, mass)
        for _ in range(_WALK_STEPS if self._first.size else 0):
            for axis in places:
                walked = self._sums(self._weight * axis[self._to]) / mass
                axis[:] = (axis + np.where(self._linked, walked, axis)) / 2
                axis -= self._spread(axis * mass, whole)
            first, second = places
            second -= first * self._spread(first * second * mass, self._squares(first, mass))
            for axis in places:
                axis /= np.sqrt(self._spread(axis * axis * mass, whole)) + np.float32(1e-12)
        size = np.minimum(np.sqrt(self._size), _START_SIZE).astype(np.float32)[self._part]
        noise = rng.standard_normal((2, self._n)).astype(np.float32)
        far = np.hypot(*places) + np.float32(1e-6)
        started: Floats = places * (np.tanh(far) / far * size) + np.float32(0.01) * noise
        return started

    def _pull(self, places: Floats) -> Floats:
        """The sum of the pulls of all edges of each node."""
        apart = [axis[self._to] - axis[self._from] for axis in places]
        strength = 2 * self._weight / (1 + apart[0] ** 2 + apart[1] ** 2)
        return np.stack([self._sums(strength * axis) for axis in apart])

    def _push(self, places: Floats, rng: np.random.Generator) -> Floats:
        """The sum of the pushes of some nodes of the same part, drawn at random."""
        pushed = np.zeros_like(places)
        begin, size = self._begin[self._part], self._size[self._part].astype(np.float32)
        for _ in range(_PUSHES):
            drawn = (rng.random(self._n, np.float32) * size).astype(np.int64)
            other = begin + np.minimum(drawn, self._size[self._part] - 1)
            apart = places - places[:, other]
            near = apart[0] ** 2 + apart[1] ** 2
            strength = 2 / ((np.float32(0.01) + near) * (1 + near))
            pushed += np.clip(strength * apart, -_MAX_PUSH, _MAX_PUSH)
        return pushed

    def _sums(self, values: Floats) -> Floats:
        """The sum over the edges of each node."""
        sums = np.zeros(self._n, np.float32)
        if self._first.size:
            sums[self._linked] = np.add.reduceat(values, self._first)
        return sums

    def _mean(self, values: Floats) -> Floats:
        return (np.bincount(self._part, values) / self._size).astype(np.float32)

    def _spread(self, values: Floats, whole: Sums) -> Floats:
        """The sum over each part as a share of ``whole``, at each of its nodes."""
        share = np.bincount(self._part, values) / whole
        return share.astype(np.float32)[self._part]

    def _squares(self, values: Floats, mass: Floats) -> Sums:
        squares: Sums = np.bincount(self._part, values * values * mass)
        return np.maximum(squares, 1e-12)
