"""Which pairs of some models become edges of a graph, compared as sharply as is cheap.

Where comparing all supports with each other is cheap that is done. Else signatures find the pairs
that may become edges, and these are compared again exactly as long as that is cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from modelkin.core import estimators
from modelkin.core.packed import PackedSupport, matrix
from modelkin.core.similarity.distances import MatrixDistances, SignatureDistances
from modelkin.core.similarity.edges import Pairs, exact_similarity, nearest_pairs, pairs_from
from modelkin.errors import InvalidParameter

__all__ = ["MOST_EDGES", "Edges", "Found", "Models"]

MOST_EDGES = 200_000

_REFINED_WORK = 4 << 30
"""Comparing again those that signatures found reads so many bytes at most."""
_ROUNDING = 1e-9
_SPARE = 2
"""How many times as many candidates as neighbours are compared again."""
_ERRORS = 4.0
"""Standard errors below a threshold from which on a pair is compared again."""


@dataclass(frozen=True, slots=True)
class Models:
    """The nodes, by name, as far as they are compared.

    Attributes:
        values: of their signatures, shape ``(n, num_perm)``.
        supports: opened, where they will be compared.
        bytes_each: what comparing two supports reads of each, at most.
        whole_matrix: comparing all supports with each other is cheap.
    """

    names: Sequence[str]
    values: npt.NDArray[np.unsignedinteger]
    supports: Sequence[PackedSupport | None]
    bytes_each: int
    whole_matrix: bool

    @property
    def exact(self) -> npt.NDArray[np.bool_]:
        """Which of them can be compared exactly, shape ``(n,)``."""
        return np.array([support is not None for support in self.supports], np.bool_)


@dataclass(frozen=True, slots=True)
class Found:
    """Edges, and which of them were compared exactly, shape ``(e,)``."""

    pairs: Pairs
    exact: npt.NDArray[np.bool_]


class Edges:
    """Finds the edges among some models."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._estimated = SignatureDistances(models.values)

    def nearest(self, k: int) -> Found:
        """Those of the k nearest neighbours; who shares nothing is nobody's neighbour."""
        if self._models.whole_matrix:
            found = self._compared(nearest_pairs(self._matrix, k))
        else:
            candidates = nearest_pairs(self._estimated, _SPARE * k)
            found = self._refined(candidates)
            found = self._kept(found, found.pairs.nearest(k))
        return self._only(found, found.pairs.similarity > 0)

    def beyond(self, threshold: float) -> Found:
        """All pairs from a similarity on.

        Raises:
            InvalidParameter: there are more than a graph takes.
        """
        if self._models.whole_matrix:
            pairs = pairs_from(self._matrix, threshold - _ROUNDING, MOST_EDGES)
            if pairs is None:
                raise _too_many(threshold)
            found = self._compared(pairs)
            return self._only(found, found.pairs.similarity >= threshold)
        error = estimators.standard_error(
            estimators.jaccard_of(threshold), self._models.values.shape[1]
        )
        pairs = pairs_from(self._estimated, max(0.0, threshold - _ERRORS * error), 2 * MOST_EDGES)
        if pairs is None:  # too many to look at twice: the estimates stand
            pairs = pairs_from(self._estimated, threshold, MOST_EDGES)
            if pairs is None:
                raise _too_many(threshold)
            return Found(pairs, np.zeros(len(pairs), np.bool_))
        found = self._refined(pairs)
        found = self._only(found, found.pairs.similarity >= threshold)
        if len(found.pairs) > MOST_EDGES:
            raise _too_many(threshold)
        return found

    @cached_property
    def _similarity(self) -> npt.NDArray[np.float64]:
        """S of all pairs, exactly where both have a support, shape ``(n, n)``."""
        models = self._models
        n, full = len(models.names), np.flatnonzero(models.exact)
        similarity = np.eye(n)
        if full.size < n:
            similarity = 1.0 - self._estimated.block(np.arange(n))
        if full.size:
            packed = [support for support in models.supports if support is not None]
            similarity[np.ix_(full, full)] = matrix(packed)
        return similarity

    @property
    def _matrix(self) -> MatrixDistances:
        return MatrixDistances(self._similarity)

    def _compared(self, pairs: Pairs) -> Found:
        """The same pairs with S itself, of which a distance is only the rest to 1, rounded."""
        a, b = pairs.ends.T
        return self._told(Pairs(pairs.ends, self._similarity[a, b]))

    def _told(self, pairs: Pairs) -> Found:
        exact: npt.NDArray[np.bool_] = np.all(self._models.exact[pairs.ends], axis=1)
        return Found(pairs, exact)

    def _refined(self, pairs: Pairs) -> Found:
        """The same pairs, compared exactly where both have a support and it is cheap."""
        found = self._told(pairs)
        if np.count_nonzero(found.exact) * self._models.bytes_each > _REFINED_WORK:
            return Found(pairs, np.zeros(len(pairs), np.bool_))
        similarity = pairs.similarity.copy()
        supports = {row: s for row, s in enumerate(self._models.supports) if s is not None}
        similarity[found.exact] = exact_similarity(supports, pairs.ends[found.exact])
        return Found(Pairs(pairs.ends, similarity), found.exact)

    def _kept(self, found: Found, pairs: Pairs) -> Found:
        """Some of the pairs found."""
        n = len(self._models.names)
        keys = found.pairs.ends[:, 0] * n + found.pairs.ends[:, 1]
        return self._only(found, np.isin(keys, pairs.ends[:, 0] * n + pairs.ends[:, 1]))

    def _only(self, found: Found, kept: npt.NDArray[np.bool_]) -> Found:
        return Found(found.pairs.of(kept), found.exact[kept])


def _too_many(threshold: float) -> InvalidParameter:
    return InvalidParameter(
        f"more than {MOST_EDGES} pairs have S of {threshold:g} or more: raise the threshold, ask "
        f"for the k nearest, or choose models by tag",
        field="threshold",
    )
