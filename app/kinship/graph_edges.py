"""The edges of a graph: pairs of models, compared as sharply as is affordable.

If it is affordable, all supports are compared with each other. Otherwise signatures find
candidate pairs, and supports compare these again as long as that is affordable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from app.infra.deadlines import NEVER, Deadline
from app.search.constants import NO_CONSTANTS, Constants
from modelkin.core import estimators
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.distances import MatrixDistances, SignatureDistances, blocks
from modelkin.core.similarity.edges import Pairs, exact_similarity, nearest_pairs, pairs_from
from modelkin.core.similarity.matrix import matrix
from modelkin.core.subspaces.affinity import SubspaceDistances, scaled_columns
from modelkin.core.subspaces.subspace import Compare, Subspace
from modelkin.errors import InvalidParameter

__all__ = [
    "MAX_EDGES",
    "MAX_NEAREST_EDGES",
    "EdgeFinder",
    "EdgeSet",
    "GraphModels",
    "subspace_edges",
]

MAX_NEAREST_EDGES = 1_000_000
"""The most edges to nearest models, which 100,000 models have by default."""
MAX_EDGES = 200_000
"""The most edges beyond a threshold."""

_MAX_REFINED_BYTES = 4 << 30
"""The most bytes that comparing candidate pairs again reads."""
_EPSILON = 1e-9
_CANDIDATE_FACTOR = 2
"""Candidates that are compared again for each neighbour sought."""
_MARGIN_STANDARD_ERRORS = 4.0
"""Standard errors below a threshold from which on a pair is compared again."""


@dataclass(frozen=True)
class GraphModels:
    """The nodes, by name, with the data to compare them.

    Attributes:
        values: the values of their signatures, shape ``(n, num_perm)``.
        supports: the open supports that will be compared.
        bytes_each: the most bytes of a support that a comparison reads.
        whole_matrix: whether comparing all supports with each other is affordable.
        constants: the tensors that are left out.
    """

    names: Sequence[str]
    values: npt.NDArray[np.unsignedinteger]
    supports: Sequence[PackedSupport | None]
    bytes_each: int
    whole_matrix: bool
    constants: Constants = NO_CONSTANTS

    @cached_property
    def by_row(self) -> dict[int, PackedSupport]:
        """The open supports by their rows."""
        return {row: s for row, s in enumerate(self.supports) if s is not None}

    @property
    def exact(self) -> npt.NDArray[np.bool_]:
        """Whether each model can be compared exactly, shape ``(n,)``."""
        return np.array([support is not None for support in self.supports], np.bool_)


@dataclass(frozen=True, slots=True)
class EdgeSet:
    """Edges, and whether each was compared exactly, shape ``(e,)``."""

    pairs: Pairs
    exact: npt.NDArray[np.bool_]


class EdgeFinder:
    """Finds the edges among some models until a deadline.

    After the deadline no more models get edges, and no more pairs are compared exactly.

    Args:
        models: the nodes.
    """

    def __init__(self, models: GraphModels, deadline: Deadline = NEVER) -> None:
        self._models = models
        self._deadline = deadline
        self._exact = models.exact
        self._estimated = SignatureDistances(models.values, models.constants.share)

    def nearest(self, k: int) -> EdgeSet:
        """The edges of the k nearest neighbours; models that share nothing are not neighbours."""
        if self._models.whole_matrix:
            found = self._compare_again(nearest_pairs(self._matrix, k, self._deadline.passed))
        else:
            candidates = nearest_pairs(
                self._estimated, _CANDIDATE_FACTOR * k, self._deadline.passed
            )
            found = self._refine(candidates)
            found = self._filter(found, found.pairs.among_nearest(k))
        return self._filter(found, found.pairs.similarity > 0)

    def beyond(self, threshold: float) -> EdgeSet:
        """All pairs from a similarity on.

        Raises:
            InvalidParameter: there are more than a graph takes.
        """
        if self._models.whole_matrix:
            pairs = pairs_from(self._matrix, threshold - _EPSILON, MAX_EDGES, self._deadline.passed)
            if pairs is None:
                raise _too_many(threshold)
            found = self._compare_again(pairs)
            return self._filter(found, found.pairs.similarity >= threshold)
        error = estimators.standard_error(
            estimators.jaccard_of(threshold), self._models.values.shape[1]
        )
        pairs = pairs_from(
            self._estimated,
            max(0.0, threshold - _MARGIN_STANDARD_ERRORS * error),
            2 * MAX_EDGES,
            self._deadline.passed,
        )
        if pairs is None:  # too many to compare again: the estimates stand
            pairs = pairs_from(self._estimated, threshold, MAX_EDGES, self._deadline.passed)
            if pairs is None:
                raise _too_many(threshold)
            return EdgeSet(pairs, np.zeros(len(pairs), np.bool_))
        found = self._refine(pairs)
        found = self._filter(found, found.pairs.similarity >= threshold)
        if len(found.pairs) > MAX_EDGES:
            raise _too_many(threshold)
        return found

    @cached_property
    def _similarity(self) -> npt.NDArray[np.float64]:
        """S of all pairs, shape ``(n, n)``: exactly where both have a support, if there is time."""
        models = self._models
        n, full = len(models.names), np.flatnonzero(self._exact)
        similarity = np.eye(n)
        if full.size:
            packed = [support for support in models.supports if support is not None]
            try:
                similarity[np.ix_(full, full)] = matrix(
                    packed, self._require_time, models.constants.gaps
                )
            except _Late:
                self._exact = np.zeros(n, np.bool_)
        if not self._exact.all():
            estimated = np.zeros((n, n))
            for rows, distances in blocks(self._estimated, np.arange(n), self._deadline.passed):
                estimated[rows] = 1.0 - distances
            both = self._exact[:, None] & self._exact
            similarity = np.where(both, similarity, estimated)
        return similarity

    def _require_time(self, _done: int, _total: int) -> None:
        if self._deadline.passed():
            raise _Late

    @property
    def _matrix(self) -> MatrixDistances:
        return MatrixDistances(self._similarity)

    def _compare_again(self, pairs: Pairs) -> EdgeSet:
        """Return the pairs with their exact S, because a distance is 1 - S with rounding."""
        a, b = pairs.ends.T
        return self._with_exactness(Pairs(pairs.ends, self._similarity[a, b]))

    def _with_exactness(self, pairs: Pairs) -> EdgeSet:
        exact: npt.NDArray[np.bool_] = np.all(self._exact[pairs.ends], axis=1)
        return EdgeSet(pairs, exact)

    def _refine(self, pairs: Pairs) -> EdgeSet:
        """Compare pairs exactly if both models have a support and it is cheap."""
        found = self._with_exactness(pairs)
        if np.count_nonzero(found.exact) * self._models.bytes_each > _MAX_REFINED_BYTES:
            return EdgeSet(pairs, np.zeros(len(pairs), np.bool_))
        similarity = pairs.similarity.copy()
        supports = self._models.by_row
        rows = np.flatnonzero(found.exact)
        gaps = self._models.constants.gaps
        compared = exact_similarity(supports, pairs.ends[rows], self._deadline.passed, gaps)
        exact = np.zeros(len(pairs), np.bool_)
        exact[rows[: compared.size]] = True
        similarity[exact] = compared
        return EdgeSet(Pairs(pairs.ends, similarity), exact)

    def _filter(self, found: EdgeSet, kept: npt.NDArray[np.bool_]) -> EdgeSet:
        return EdgeSet(found.pairs.of(kept), found.exact[kept])


def subspace_edges(
    subspaces: Sequence[Subspace],
    compare: Compare,
    k: int | None,
    threshold: float,
    deadline: Deadline,
) -> EdgeSet:
    """Find the edges among data subspaces: all pairs are compared, block by block.

    Args:
        k: the neighbours of each model; None for all pairs from the threshold on.
        threshold: the least S of an edge, if there is no k.

    Raises:
        InvalidParameter: there are more pairs than a graph takes.
    """
    distances = SubspaceDistances([scaled_columns(each, compare) for each in subspaces])
    if k is not None:
        pairs = nearest_pairs(distances, k, deadline.passed)
        pairs = pairs.of(pairs.similarity > 0)
    else:
        found = pairs_from(distances, threshold, MAX_EDGES, deadline.passed)
        if found is None:
            raise _too_many(threshold)
        pairs = found
    return EdgeSet(pairs, np.ones(len(pairs), np.bool_))


class _Late(Exception):
    """The deadline passed while a matrix was computed; a part of a matrix is useless."""


def _too_many(threshold: float) -> InvalidParameter:
    return InvalidParameter(
        f"more than {MAX_EDGES} pairs have S of {threshold:g} or more: raise the threshold, ask "
        f"for the k nearest, or choose models by tag",
        field="threshold",
    )
