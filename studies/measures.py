"""How well a ranking of clients agrees with their labels, and how two methods differ over seeds.

Oracles are label histograms: a client's true neighbours are those of least divergence, by default
that of Jensen and Shannon. Divergences that differ by rounding alone are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import stats

from demo.data import DECIMALS, jensen_shannon
from studies.federations import Floats

__all__ = ["Oracle", "Paired", "interval", "mean_of", "others", "paired", "ranking"]

_FEW: Final = 3
"""Seeds of which an interval says little."""

Order = npt.NDArray[np.intp]


class Oracle:
    """Clients' true neighbours.

    Args:
        mixes: label distributions, ``(N, classes)``.
        divergences: of all pairs of them, ``(N, N)``.
    """

    def __init__(
        self, mixes: Floats, divergences: Callable[[Floats], Floats] = jensen_shannon
    ) -> None:
        self.mixes = mixes
        self._far = np.round(others(divergences(mixes)), DECIMALS)
        """The divergence of each client from all others, ``(N, N - 1)``."""
        self._ranks = np.argsort(np.argsort(self._far, axis=1, kind="stable"), axis=1)

    def recall(self, order: Order, k: int) -> float:
        """The share of the first k that are among the k nearest, ties by number."""
        return float(np.take_along_axis(self._ranks < k, order[:, :k], 1).mean())

    def tied_recall(self, order: Order, k: int) -> float:
        """The share of the first k that are as near as the k-th nearest, or nearer."""
        near = self._far <= np.sort(self._far, axis=1)[:, k - 1 : k]
        return float(np.take_along_axis(near, order[:, :k], 1).mean())

    def chance(self, k: int) -> float:
        """:meth:`tied_recall` of k others at random."""
        near = self._far <= np.sort(self._far, axis=1)[:, k - 1 : k]
        return float(near.mean())

    def tau(self, similarity: Floats) -> float:
        """The mean over clients of Kendall's tau-b of a similarity ``(N, N)`` and the truth."""
        pairs = zip(others(similarity), self._far, strict=True)
        found = [stats.kendalltau(row, -far).statistic for row, far in pairs]
        return float(np.nanmean(found))

    def alignment(self, weights: Floats) -> float:
        """The mean divergence of a client's labels from its donors', mixed by ``(N, N)`` weights.

        Rows without any weight are left out.
        """
        rows = np.flatnonzero(weights.sum(axis=1) > 0)
        mixed = weights[rows] @ self.mixes / weights[rows].sum(axis=1, keepdims=True)
        pairs = zip(self.mixes[rows], mixed, strict=True)
        return float(np.mean([jensen_shannon(np.stack(pair))[0, 1] for pair in pairs]))


def others(matrix: Floats) -> Floats:
    """Each row without its entry on the diagonal, ``(N, N - 1)``."""
    n = len(matrix)
    return matrix[~np.eye(n, dtype=bool)].reshape(n, n - 1)


def ranking(similarity: Floats) -> Order:
    """The others of each client by descending similarity, ties by number, ``(N, N - 1)``."""
    return np.argsort(-others(similarity), axis=1, kind="stable")


@dataclass(frozen=True, slots=True)
class Paired:
    """A difference between two methods on the same seeds.

    Attributes:
        mean: of the differences.
        margin: half of their 95% interval, by Student's t; infinite for one seed.
        ahead: seeds with a positive difference.
        seeds: how many.
    """

    mean: float
    margin: float
    ahead: int
    seeds: int

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 0; never for one seed."""
        return abs(self.mean) > self.margin

    def is_above(self, bound: float) -> bool:
        """Whether the whole interval is above a bound: the rule of every target; no for one seed.

        The mean alone would call a target met that the next seeds may miss.
        """
        return self.mean - self.margin > bound

    @property
    def spread(self) -> str:
        """``+.08 ± .02``; the difference alone for one seed."""
        margin = "" if self.seeds == 1 else f" ± {self.margin:.3f}"
        return f"{self.mean:+.3f}{margin}"

    @property
    def in_words(self) -> str:
        """The same, and how many seeds are ahead."""
        return f"{self}{'' if self.seeds == 1 else ' seeds'}"

    def __str__(self) -> str:
        rest = "one seed" if self.seeds == 1 else f"ahead in {self.ahead} of {self.seeds}"
        return f"{self.spread}, {rest}"


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Paired:
    """The difference of figures of the same seeds."""
    differences = np.subtract(ours, theirs)
    mean, margin = interval(differences)
    return Paired(mean, margin, int((differences > 0).sum()), differences.size)


def interval(values: npt.ArrayLike) -> tuple[float, float]:
    """The mean and half of its 95% interval, by Student's t; infinite for one value."""
    found = np.asarray(values, np.float64)
    if found.size < 2:
        return float(found.mean()), float("inf")
    error = found.std(ddof=1) / found.size**0.5
    return float(found.mean()), float(stats.t.ppf(0.975, found.size - 1) * error)


def mean_of(values: npt.ArrayLike) -> str:
    """``.81 ± .02``: the mean and its 95% interval; of few values the least and the greatest.

    Student's interval of two or three is several times as wide as they lie apart, and leaves the
    range of most measures.
    """
    found = np.asarray(values, np.float64)
    mean, margin = interval(found)
    if not np.isfinite(margin):
        return f"{mean:.3f}"
    if found.size <= _FEW and margin > 0:
        return f"{mean:.3f} ({found.min():.3f} to {found.max():.3f})"
    return f"{mean:.3f} ± {margin:.3f}"
