"""Cuts of the tree of a matrix: where it is best cut, and what in it is no more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.clustering.dendrogram import Dendrogram
from modelkin.core.clustering.linkage import groups
from modelkin.core.estimators import standard_errors
from modelkin.core.similarity.constants import AT_CHANCE
from modelkin.core.similarity.strangers import MAX_P, log10_ps, trials

__all__ = ["PairChances", "held_by_chance", "suggest_cut"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_ERRORS: Final = 2.0
"""Standard errors by which an estimate is beyond what chance gives, where no P is known."""


@dataclass(frozen=True, slots=True)
class PairChances:
    """What chance gives each two of n models.

    Attributes:
        expected: the mean S of two models that are unrelated, shape ``(n, n)``.
        beyond: whether two are nearer than unrelated ones, all pairs having been compared.
    """

    expected: Floats
    beyond: Bools

    @classmethod
    def of(
        cls,
        values: Floats,
        kappa: Floats | None,
        sizes: Floats,
        exact: Bools,
        num_parameters: int,
        num_perm: int,
    ) -> PairChances:
        """Judge all pairs.

        Args:
            values: S, shape ``(n, n)``.
            kappa: S beyond chance in each tensor, NaN where that is not known; None where it is of
                no pair.
            sizes: how many indices each model has, shape ``(n,)``.
            exact: whether a model has a support, shape ``(n,)``.
            num_parameters: M.
            num_perm: h of the signatures by which other pairs are estimated.
        """
        a, b = np.broadcast_arrays(np.maximum(1.0, sizes)[:, None], np.maximum(1.0, sizes))
        # Indices drawn from all parameters alike are the least that chance gives.
        least = 2.0 * a * b / (num_parameters * (a + b))
        jaccard = values / (2.0 - values)
        both = exact[:, None] & exact
        errors = np.where(both, 0.0, standard_errors(jaccard.ravel(), num_perm).reshape(a.shape))
        floor = least + AT_CHANCE * (1.0 - least)
        beyond = values - _ERRORS * errors >= floor
        if kappa is None:
            return cls(least, beyond)
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = (values - kappa) / (1.0 - kappa)
        pairs = max(1, len(sizes) * (len(sizes) - 1) // 2)
        log10_p = log10_ps(values, expected, a, b, trials(a, b))
        known = ~np.isnan(log10_p)
        with np.errstate(invalid="ignore"):
            surely = log10_p + np.log10(pairs) < np.log10(MAX_P)
        return cls(np.where(known, expected, least), np.where(known, surely, beyond))

    @property
    def mean(self) -> float:
        """The mean S by chance of two different models, of which there are two at least."""
        return float(self.expected[np.triu_indices(len(self.expected), 1)].mean())


def held_by_chance(tree: Dendrogram, chances: PairChances) -> list[bool]:
    """Whether each join of a tree has no pair across that is nearer than chance makes unrelated
    ones.
    """
    beyond = chances.beyond[np.ix_(tree.order, tree.order)]
    return [
        not beyond[join.begin : join.middle, join.middle : join.end].any() for join in tree.joins
    ]


def suggest_cut(
    values: Floats, num_perm: int | None, tree: Dendrogram, by_chance: Sequence[bool]
) -> float:
    """The S of the cut that leaves the groups that the silhouette prefers, which may be one group.

    It is never so low that chance alone holds a group together.

    Args:
        values: S of all pairs, shape ``(n, n)``.
        num_perm: h of the signatures that S was estimated from; None where it is exact.
        tree: their tree.
        by_chance: of each join, see :func:`held_by_chance`.
    """
    labels, _ = groups(values, num_perm=num_perm)
    height = tree.height_of(int(labels.max()) + 1)
    strangers = [
        join.height for join, is_chance in zip(tree.joins, by_chance, strict=True) if is_chance
    ]
    if strangers:
        height = min(height, _before(min(strangers), tree))
    return round(min(max(1.0 - height, 0.0), 1.0), 3)


def _before(height: float, tree: Dendrogram) -> float:
    """A cut below a join of strangers, half-way to the join before it."""
    lower = max((join.height for join in tree.joins if join.height < height), default=0.0)
    return (height + lower) / 2.0
