"""The steps from a snapshot to its clusters: distances, algorithm, selection and quality.

One model is a cluster of its own. Two models are one cluster, unless a parameter splits them:
without other models there is nothing to compare their similarity with. It stores nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.clustering.algorithms import affinity_propagation, agglomerative, hdbscan, leiden
from app.clustering.algorithms.partition_selector import Partition, PartitionSelector
from app.clustering.distances import Kind, ModelDistances, all_pairs, nearest_only
from app.clustering.request import ClusteringRequest
from app.clustering.snapshot import Snapshot
from app.jobs.service import Progress
from modelkin.core.clustering.clustering import exemplars, mean_within
from modelkin.core.clustering.quality import ClusterQuality, quality
from modelkin.core.similarity.distances import MatrixDistances
from modelkin.core.similarity.nearest import nearest

__all__ = ["Clusters", "cluster_distances", "cluster_models"]

CENTRING: Final = "centring"
STAGE: Final = "measuring"
_QUALITY_SAMPLE_SIZE = 10_000
"""Models whose quality is measured, against all; of more, a sample of this size."""
_MAX_QUALITY_PAIRS = 20_000_000
"""And no more of them than make so many pairs of a model and a cluster."""
_SPLITTING_OPTIONS = {"n_clusters", "distance_threshold", "preference"}
"""Parameters that can make two clusters of two models."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters of a snapshot's n models.

    Attributes:
        algorithm: that found them.
        labels: 0 to k - 1, the largest first, -1 for no cluster; shape ``(n,)``.
        exemplars: rows of the models that represent each cluster; shape ``(k,)``.
        within: the mean S of the members of each cluster to each other and themselves; ``(k,)``.
        overall: likewise of all models.
        chosen: the parameters that the algorithm chose by itself.
        quality: measured.
        kind: of the similarities.
    """

    algorithm: str
    labels: npt.NDArray[np.int64]
    exemplars: npt.NDArray[np.int64]
    within: npt.NDArray[np.float64]
    overall: float
    chosen: dict[str, Any]
    quality: ClusterQuality
    kind: Kind


def cluster_models(snapshot: Snapshot, request: ClusteringRequest, progress: Progress) -> Clusters:
    """Find the clusters of a snapshot.

    Raises:
        InvalidParameter: the parameters give no result with these models.
        MissingExtra: the libraries of the algorithm are not installed.
        JobCancelled: ``progress`` raised it, because the job was cancelled.
    """
    count = len(snapshot)
    if request.needs_matrix(count):
        pairwise = all_pairs(snapshot, progress)
    else:
        pairwise = nearest_only(snapshot, request.neighbors_of(count), progress)
    return cluster_distances(pairwise, request, progress)


def cluster_distances(
    pairwise: ModelDistances, request: ClusteringRequest, progress: Progress
) -> Clusters:
    """Find the clusters of models whose distances are known, whatever was compared.

    Args:
        pairwise: with the matrix of all pairs if the request needs it.
        request: its parameters fit so many models.
        progress: as of :func:`cluster_models`, whose errors it raises.
    """
    count = len(pairwise.distances)
    algorithm = request.algorithm_for(count)
    free = request.chooses_cluster_count(algorithm)
    if count == 1 or (count == 2 and not _SPLITTING_OPTIONS & set(request.options)):
        found = Partition(np.zeros(count, np.int64), {}, None)
    else:
        if free:
            progress(0, 1, CENTRING)
        selector = PartitionSelector(pairwise.distances, request.seed, pairwise.error, free)
        _run(algorithm, pairwise, request, selector, progress)
        found = selector.result()
    rows = _rows(count, int(found.labels.max()) + 1, request.seed)
    progress(0, rows.size, STAGE)
    return Clusters(
        algorithm=algorithm,
        labels=found.labels,
        exemplars=exemplars(pairwise.distances, found.labels),
        within=mean_within(pairwise.distances, found.labels),
        overall=float(mean_within(pairwise.distances, np.zeros(count, np.int64))[0]),
        chosen=found.chosen,
        quality=quality(
            pairwise.distances,
            found.labels,
            rows=rows,
            report=lambda done, total: progress(done, total, STAGE),
        ),
        kind=pairwise.kind,
    )


def _run(
    algorithm: str,
    pairwise: ModelDistances,
    request: ClusteringRequest,
    selector: PartitionSelector,
    progress: Progress,
) -> None:
    """Pass all partitions that the algorithm finds to the selector."""
    options, seed, matrix = request.options, request.seed, pairwise.matrix
    if algorithm == "leiden":
        near = pairwise.near
        if near is None:
            k = request.neighbors_of(len(pairwise.distances))
            near = nearest(pairwise.distances, k)
        leiden.cluster(pairwise.distances, near, options, seed, selector, progress)
        return
    assert matrix is not None  # ClusteringRequest.needs_matrix
    if algorithm == "affinity_propagation":
        affinity_propagation.cluster(matrix, options, seed, selector, progress)
    elif algorithm == "agglomerative":
        agglomerative.cluster(MatrixDistances(matrix).matrix(), options, selector, progress)
    else:
        distances = MatrixDistances(matrix).matrix()
        hdbscan.cluster(distances, options, selector, progress)


def _rows(models: int, clusters: int, seed: int) -> npt.NDArray[np.int64]:
    """The models whose quality is measured."""
    count = min(models, _QUALITY_SAMPLE_SIZE, max(1, _MAX_QUALITY_PAIRS // max(1, clusters)))
    if count == models:
        return np.arange(models)
    return np.sort(np.random.default_rng(seed).choice(models, count, replace=False))
