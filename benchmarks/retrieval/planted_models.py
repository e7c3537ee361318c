"""Simulated signatures of a million models, drawn from the distribution of MinHash.

A support that holds every parameter with probability p, independently, meets its first member under
a random permutation at a place that is geometric: ``P(g) = p (1 - p)^g``. Two such supports have
equal values where these places are equal, which is with probability ``p / (2 - p)``, their Jaccard
similarity. So h drawn places per model are distributed as h permutations of a large support. A
model with a known J to another takes each of its values with probability J, and differs otherwise.
Nothing here shows how good the method is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.estimators import jaccard_of
from modelkin.core.kernels.loops import compile_loop

__all__ = [
    "BACKGROUNDS",
    "DENSITY",
    "H",
    "NEAR",
    "Background",
    "Kin",
    "Members",
    "bits",
    "drawn_some",
    "plant",
    "simulated",
]

Values = npt.NDArray[np.uint32]
Words = npt.NDArray[np.uint64]

H = 256
NEAR = 10
"""Kin of every query."""
DENSITY = 0.0952
"""K / M of the bitmaps and sketches beside the signatures."""


@dataclass(frozen=True, slots=True)
class Background:
    """The distribution of the unrelated models.

    Attributes:
        name: in the tables.
        held: p, so that two of them have a J of ``p / (2 - p)``.
        popular: the largest share of its values that a model takes from a common prototype; a
            query takes exactly this share.
        least, most: S of the farthest and of the nearest kin of a query; the others between them.
    """

    name: str
    held: float
    popular: float = 0.0
    least: float = 0.3
    most: float = 0.9

    @property
    def similarities(self) -> npt.NDArray[np.float64]:
        """S of the kin, shape ``(NEAR,)``, ascending."""
        return np.linspace(self.least, self.most, NEAR)


BACKGROUNDS = (
    Background("sparse", 0.0952),
    Background("mixed", 0.0952, popular=0.23),
    Background("dense", 0.1818),
    Background("federation", 0.4, least=0.7097, most=0.8571),
)
"""J between unrelated models of .05; the same with popular places; .1; and .25, with kin at a J of
.55 to .75."""


@dataclass(frozen=True, slots=True)
class Kin:
    """Signatures of n models, and queries whose kin among them are known.

    Attributes:
        values: shape ``(n, H)``.
        queries: shape ``(q, H)``.
        near: rows of each query's kin, shape ``(q, NEAR)``, S ascending along them.
        similarities: S of the kin, shape ``(NEAR,)``.
    """

    background: Background
    values: Values
    queries: Values
    near: npt.NDArray[np.int64]
    similarities: npt.NDArray[np.float64]

    def found(self, answers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """The kin that are among the answers.

        Args:
            answers: rows, shape ``(q, k)``; -1 for no answer.

        Returns:
            Shape ``(q, NEAR)``.
        """
        found: npt.NDArray[np.bool_] = np.any(self.near[:, :, None] == answers[:, None], axis=2)
        return found


def simulated(background: Background, n: int, queries: int, seed: int = 1) -> Kin:
    """Draw the same models and queries every time.

    Args:
        background: of the n models; ``NEAR`` of them are made kin of each query.
        n: at least ``NEAR * queries``.
        queries: q.
        seed: of it all.
    """
    rng = np.random.default_rng(seed)
    prototype = rng.geometric(background.held, H).astype(np.uint64) + np.uint64(2)
    share = rng.uniform(0, background.popular, n)
    values = _drawn(n, background, prototype, share, 2 * seed)
    all_of_it = np.full(queries, background.popular)
    asked = _drawn(queries, background, prototype, all_of_it, 2 * seed + 1)
    near = rng.permutation(n)[: queries * NEAR].reshape(queries, NEAR)
    plant(background, values, asked, near, rng)
    return Kin(background, values, asked, near, background.similarities)


def drawn_some(background: Background, n: int, seed: int, share: float | None = None) -> Values:
    """n signatures of a background; another seed gives others.

    Args:
        share: of their values from the common prototype, for all; each its own by default.
    """
    prototype = np.random.default_rng(1).geometric(background.held, H).astype(np.uint64)
    shares = np.random.default_rng(seed).uniform(0, background.popular, n)
    if share is not None:
        shares[:] = share
    return _drawn(n, background, prototype + np.uint64(2), shares, seed)


def plant(
    background: Background,
    values: Values,
    queries: Values,
    near: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> None:
    """Make rows of ``values`` the kin of queries.

    Args:
        near: shape ``(q, NEAR)``; a row that ``values`` has not is left to others.
    """
    for query, rows in enumerate(near):
        for row_of, similarity in zip(rows.tolist(), background.similarities, strict=True):
            if 0 <= row_of < len(values):
                row = values[row_of]
                taken = rng.random(H) < jaccard_of(similarity)
                row[:] = np.where(taken, queries[query], row + (row == queries[query]))


class Members:
    """The sampled coordinates that models of a background hold.

    All models draw from a common share of the coordinates. So each holds ``DENSITY`` of all, and
    two of them overlap as the background says.

    Args:
        words: 64 coordinates each.
    """

    def __init__(self, background: Background, words: int, seed: int = 1) -> None:
        self._rng = np.random.default_rng(seed)
        self._background = background
        self._pool = bits(self._rng, DENSITY / background.held, words)

    def unrelated(self, count: int) -> Words:
        """Members of unrelated models, shape ``(count, words)``."""
        drawn = bits(self._rng, self._background.held, count, self._pool.size)
        drawn &= self._pool
        return drawn

    def kin(self, query: Words) -> Words:
        """Members of the kin of a query, of each similarity one, shape ``(NEAR, words)``."""
        share = self._background.held / (1 - self._background.held)
        rows = np.empty((NEAR, query.size), np.uint64)
        for place, similarity in enumerate(self._background.similarities):
            kept = bits(self._rng, similarity, query.size)
            new = bits(self._rng, share * (1 - similarity), query.size)
            rows[place] = (query & kept) | (self._pool & ~query & new)
        return rows


def bits(rng: np.random.Generator, probability: float, *shape: int) -> Words:
    """Words whose bits are set with a probability, to the nearest 256th."""
    eighths = round(probability * 256)
    words = np.full(shape, 2**64 - 1 if eighths >= 256 else 0, np.uint64)
    for place in range(8 if eighths < 256 else 0):
        random = rng.integers(0, 2**64, shape, dtype=np.uint64)
        if eighths >> place & 1:
            words |= random
        else:
            words &= random
    return words


def _drawn(
    n: int,
    background: Background,
    prototype: Words,
    share: npt.NDArray[np.float64],
    seed: int,
) -> Values:
    values = np.empty((n, H), np.uint32)
    log_missed = np.array([math.log1p(-background.held)])  # loops take arrays and integers
    _draw(values, prototype, share, log_missed, seed)
    return values


@compile_loop
def _draw(values: Any, prototype: Any, share: Any, log_missed: Any, seed: int) -> None:
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            at = (np.uint64(seed) << np.uint64(48)) + np.uint64(
                i * values.shape[1] + j
            ) * np.uint64(2)
            place = prototype[j]
            if _uniform(at) >= share[i]:
                # One minus a uniform is above 0, and its logarithm over that of a miss the place.
                place = np.uint64(np.log(1.0 - _uniform(at + np.uint64(1))) / log_missed[0])
            values[i, j] = np.uint32(_mix(place * np.uint64(H) + np.uint64(j)) >> np.uint64(32))


@compile_loop
def _uniform(at: Any) -> Any:
    """The at-th number of a sequence that is even on [0, 1)."""
    return np.float64(_mix(at) >> np.uint64(11)) * 2.0**-53


@compile_loop
def _mix(x: Any) -> Any:
    """One step of SplitMix64."""
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
