"""The distances of a snapshot: the matrix of all pairs, or the nearest models of each.

Up to some thousand models all pairs are compared, exactly if both have a support. Beyond,
signatures compare all pairs block by block, and only the nearest are kept. Supports compare these
again if that is affordable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from app.jobs.service import Progress
from app.kinship.clustering.snapshot import Snapshot
from modelkin.core.similarity.distances import Distances, MatrixDistances, SignatureDistances
from modelkin.core.similarity.edges import exact_similarity
from modelkin.core.similarity.matrix import matrix
from modelkin.core.similarity.nearest import Nearest, nearest
from modelkin.core.subspaces.affinity import SubspaceDistances, affinities, scaled_columns

__all__ = ["ModelDistances", "SimilaritySource", "compare_models"]

Floats = npt.NDArray[np.float64]
SimilaritySource = Literal["exact", "mixed", "signature"]
"""Supports or subspaces, both supports and signatures, or signatures alone."""

STAGE: Final = "comparing"
_CANDIDATE_FACTOR = 2
"""Candidates that are compared exactly, for each neighbour kept."""


@dataclass(frozen=True, slots=True)
class ModelDistances:
    """The distances of n models.

    Attributes:
        distances: the distances of all pairs.
        similarity: the source of the similarities behind the clusters. ``mixed`` is exact for
            pairs that both have a support; beyond some thousand models only for near pairs.
        error: the standard error of an estimated distance; None if all are exact.
        matrix: S of all pairs, ``(n, n)``; None if only the nearest were kept.
        near: the nearest models of each model; None if there is a matrix.
    """

    distances: Distances
    similarity: SimilaritySource
    error: Callable[[float], float] | None
    matrix: Floats | None
    near: Nearest | None

    def nearest(self, k: int) -> Nearest:
        """The k nearest of each model; those that were kept, if any were."""
        return nearest(self.distances, k) if self.near is None else self.near


def compare_models(snapshot: Snapshot, progress: Progress) -> ModelDistances:
    """Compare the models of a snapshot as its plan says."""
    if snapshot.plan.matrix:
        return _all_pairs(snapshot, progress)
    return _nearest_only(snapshot, snapshot.plan.neighbors, progress)


def _all_pairs(snapshot: Snapshot, progress: Progress) -> ModelDistances:
    """Compare every model with every other."""
    progress(0, 0, STAGE)
    if snapshot.subspaces is not None and snapshot.compare is not None:
        similarity = affinities(snapshot.subspaces, snapshot.compare)
        return ModelDistances(MatrixDistances(similarity), "exact", None, similarity, None)
    estimated = SignatureDistances(snapshot.values, snapshot.constants.share)
    rows = [row for row, support in enumerate(snapshot.supports) if support is not None]
    exact = _exact(snapshot, progress) if rows else None
    if exact is not None and len(rows) == len(snapshot):
        return ModelDistances(MatrixDistances(exact), "exact", None, exact, None)
    similarity = 1.0 - estimated.block(np.arange(len(snapshot)))
    if exact is not None:
        similarity[np.ix_(rows, rows)] = exact
    source: SimilaritySource = "signature" if exact is None else "mixed"
    return ModelDistances(MatrixDistances(similarity), source, estimated.error, similarity, None)


def _exact(snapshot: Snapshot, progress: Progress) -> Floats:
    """S of all pairs of the models that have a support, in their order."""
    supports = [support for support in snapshot.supports if support is not None]
    gaps = snapshot.constants.gaps
    return matrix(supports, report=lambda done, total: progress(done, total, STAGE), gaps=gaps)


def _nearest_only(snapshot: Snapshot, k: int, progress: Progress) -> ModelDistances:
    """Find the k nearest of each model; the distances of all pairs stay estimates.

    Args:
        k: below the number of models.
    """
    progress(0, len(snapshot), STAGE)
    if snapshot.subspaces is not None and snapshot.compare is not None:
        compared = SubspaceDistances(
            [scaled_columns(each, snapshot.compare) for each in snapshot.subspaces]
        )
        near = nearest(compared, k, lambda done, total: progress(done, total, STAGE))
        return ModelDistances(compared, "exact", None, None, near)
    estimated = SignatureDistances(snapshot.values, snapshot.constants.share)
    supports = sum(support is not None for support in snapshot.supports)
    candidates = min(len(snapshot) - 1, _CANDIDATE_FACTOR * k) if supports else k
    near = nearest(estimated, candidates, lambda done, total: progress(done, total, STAGE))
    if supports:
        near = _refine(near, snapshot, progress)
    source: SimilaritySource = "mixed" if supports > 1 else "signature"
    return ModelDistances(estimated, source, estimated.error, None, near.best(k))


def _refine(near: Nearest, snapshot: Snapshot, progress: Progress) -> Nearest:
    """Compare the nearest pairs exactly if both models have a support."""
    n, k = near.rows.shape
    stored = np.array([support is not None for support in snapshot.supports], np.bool_)
    owners, others = np.repeat(np.arange(n), k), near.rows.ravel()
    both = np.flatnonzero(stored[owners] & stored[others])
    keys = np.minimum(owners, others)[both] * n + np.maximum(owners, others)[both]
    pairs, place = np.unique(keys, return_inverse=True)
    report = partial(progress, 0, n, f"{STAGE} exactly")
    report()
    similarity = exact_similarity(
        {row: s for row, s in enumerate(snapshot.supports) if s is not None},
        np.stack(np.divmod(pairs, n), axis=1),
        lambda: report() is not None,  # it never stops, and an error of the report ends it
        snapshot.constants.gaps,
    )
    far = near.distances.copy().ravel()
    far[both] = 1.0 - similarity[place]
    return Nearest(near.rows, far.reshape(n, k))
