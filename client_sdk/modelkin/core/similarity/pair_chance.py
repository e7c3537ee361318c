"""``PairChance``: which of many models are nearer to each other than unrelated ones are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.estimators import standard_errors
from modelkin.core.similarity.chance import kappas
from modelkin.core.similarity.constants import AT_CHANCE
from modelkin.core.similarity.strangers import MAX_P, log10_ps, trials

__all__ = ["Growth", "PairChance"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Growth = Callable[[Rows, Rows], Floats]

_ROUNDING = 1e-12
_ERRORS = 2.0
"""Standard errors by which an estimate is beyond the floor of models without counts."""


@dataclass(frozen=True)
class PairChance:
    """What chance makes of n models of a space with a layout.

    Attributes:
        counts: the indices of each model in each tensor that is compared, zeros where these are not
            known; shape ``(n, tensors)``.
        sizes: n_t, shape ``(tensors,)``.
        totals: K of each model, shape ``(n,)``.
        exact: whether S of a model with another such one is exact, shape ``(n,)``.
        num_perm: h of the signatures by which other pairs are estimated.
        num_parameters: M.
        only_exact: whether chance says nothing of estimates, which cannot leave out constants.
        growth: by how much chance grows of pairs that are compared over a part, given the two ends
            of each; None for none.
    """

    counts: npt.NDArray[np.integer[Any]]
    sizes: Floats
    totals: Floats
    exact: Bools
    num_perm: int
    num_parameters: int
    only_exact: bool = False
    growth: Growth | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def known(self) -> Bools:
        """Whether the chance of a model is known, shape ``(n,)``."""
        counted: Bools = self._compared > 0
        return counted & self.exact if self.only_exact else counted

    @cached_property
    def _compared(self) -> Floats:
        """The indices of each model in tensors that are compared, shape ``(n,)``."""
        found: Floats = self.counts.sum(axis=1, dtype=np.float64)
        return found

    @property
    def comparisons(self) -> int:
        """How many pairs there are."""
        return max(1, len(self) * (len(self) - 1) // 2)

    def log10_ps(self, rows: Rows, columns: Rows, similarity: Floats) -> Floats:
        """The decimal logarithm of P of each pair; NaN where chance is not known.

        Args:
            rows: some models, shape ``(r,)``.
            columns: others, shape ``(c,)``.
            similarity: S of each with each, shape ``(r, c)``.
        """
        ours, theirs = (self.counts[some].astype(np.float64) for some in (rows, columns))
        shared = self._shares(ours) @ theirs.T
        pairs = np.broadcast_arrays(rows[:, None], columns)
        return self._of_pairs(pairs[0], pairs[1], shared, similarity)

    def kappas(self, rows: Rows, columns: Rows, similarity: Floats) -> Floats:
        """S beyond chance of each pair, likewise."""
        ours, theirs = (self.counts[some].astype(np.float64) for some in (rows, columns))
        pairs = np.broadcast_arrays(rows[:, None], columns)
        expected = self._expected(pairs[0], pairs[1], self._shares(ours) @ theirs.T)
        return kappas(similarity, expected)

    def log10_ps_of_rows(self, rows: Rows, others: Rows, similarity: Floats) -> Floats:
        """The same of some models, each with others of its own.

        Args:
            rows: shape ``(r,)``.
            others: shape ``(r, k)``.
            similarity: S of each with its others, shape ``(r, k)``.
        """
        ours, theirs = (self.counts[some].astype(np.float64) for some in (rows, others))
        shared = np.einsum("rt,rkt->rk", self._shares(ours), theirs)
        first, second = np.broadcast_arrays(rows[:, None], others)
        return self._of_pairs(first, second, shared, similarity)

    def _of_pairs(self, one: Rows, other: Rows, shared: Floats, similarity: Floats) -> Floats:
        """By how many indices chance shares."""
        a, b = (np.maximum(1.0, self._compared[some]) for some in (one, other))
        expected = self._expected(one, other, shared)
        # Two that hold whole tensors alone have S = 1 by chance, which says nothing of them.
        alike = 2.0 * a * b / (self.num_parameters * (a + b))
        expected = np.where(expected >= 1.0 - _ROUNDING, alike, expected)
        of_estimate = np.where(self.exact[one] & self.exact[other], math.inf, self.num_perm)
        return log10_ps(similarity, expected, a, b, trials(a, b, of_estimate))

    def _expected(self, one: Rows, other: Rows, shared: Floats) -> Floats:
        """S by chance, where chance shares so many indices."""
        totals = np.maximum(1.0, self._compared[one] + self._compared[other])
        known = self.known[one] & self.known[other]
        expected: Floats = np.where(known, 2.0 * shared / totals, np.nan)
        return expected if self.growth is None else expected * self.growth(one, other)

    def _shares(self, counts: Floats) -> Floats:
        return np.divide(counts, self.sizes, out=np.zeros_like(counts), where=self.sizes > 0)

    def is_beyond(self, log10_ps: Floats) -> Bools:
        """Whether pairs are nearer than unrelated models, all pairs having been compared."""
        with np.errstate(invalid="ignore"):
            found: Bools = log10_ps + math.log10(self.comparisons) < math.log10(MAX_P)
        return found

    def is_beyond_floor(self, row: int, other: int, similarity: float) -> bool:
        """Whether a pair of unknown chance is beyond that of indices drawn from all alike."""
        a, b = float(self.totals[row]), float(self.totals[other])
        expected = 2.0 * a * b / (self.num_parameters * max(1.0, a + b))
        error = 0.0
        if not (self.exact[row] and self.exact[other]):
            jaccard = np.array([similarity / (2.0 - similarity)])
            error = float(standard_errors(jaccard, self.num_perm)[0])
        return similarity - _ERRORS * error >= expected + AT_CHANCE * (1.0 - expected)
