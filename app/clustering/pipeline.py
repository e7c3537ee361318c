"""From a snapshot to its clusters: the algorithm that was asked for, its choice, and its quality.

One model is a cluster of its own. Two models are one cluster, unless a parameter parts them: with
nobody to compare their similarity to, nothing says whether it is much. It stores nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.clustering.algorithms import affinity_propagation, agglomerative, hdbscan, leiden
from app.clustering.algorithms.partition_selector import PartitionSelector
from app.clustering.distances import Kind, ModelDistances, all_pairs, nearest_only
from app.clustering.request import ClusteringRequest
from app.clustering.snapshot import Snapshot
from app.jobs.service import Progress
from modelkin.core.clustering.clustering import exemplars
from modelkin.core.clustering.quality import ClusterQuality, quality
from modelkin.core.similarity.distances import MatrixDistances
from modelkin.core.similarity.nearest import nearest

__all__ = ["Groups", "group"]

STAGE: Final = "measuring"
_MEASURED = 10_000
"""Models that the quality is measured on, against all; of more, a sample of so many."""
_CELLS = 20_000_000
"""And no more of them than make so many pairs of a model and a cluster."""
_PARTING = {"n_clusters", "distance_threshold", "preference"}
"""Parameters by which two models can be two clusters."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The clusters of a snapshot's n models.

    Attributes:
        algorithm: that found them.
        labels: 0 to k - 1, the largest first, -1 for no cluster; shape ``(n,)``.
        exemplars: rows of the models that stand for each cluster; shape ``(k,)``.
        chosen: the parameters that the algorithm chose by itself.
        quality: measured.
        kind: how similarities came about.
    """

    algorithm: str
    labels: npt.NDArray[np.int64]
    exemplars: npt.NDArray[np.int64]
    chosen: dict[str, Any]
    quality: ClusterQuality
    kind: Kind


def group(snapshot: Snapshot, asked: ClusteringRequest, progress: Progress) -> Groups:
    """The clusters of a snapshot.

    Raises:
        InvalidParameter: the parameters lead nowhere with these models.
        MissingExtra: the libraries of the algorithm are not installed.
        JobCancelled: somebody asked ``progress`` to stop.
    """
    count = len(snapshot)
    algorithm = asked.algorithm_for(count)
    if asked.needs_matrix(count):
        compared = all_pairs(snapshot, progress)
    else:
        compared = nearest_only(snapshot, asked.neighbors_of(count), progress)
    judge = PartitionSelector(compared.distances, asked.seed, compared.error)
    if count == 1 or (count == 2 and not _PARTING & set(asked.options)):
        judge.consider(np.zeros(count, np.int64))
        found = judge.verdict(free=False)
    else:
        _run(algorithm, compared, asked, judge, progress)
        found = judge.verdict(free=asked.is_free(algorithm))
    rows = _rows(count, int(found.labels.max()) + 1, asked.seed)
    progress(0, rows.size, STAGE)
    return Groups(
        algorithm=algorithm,
        labels=found.labels,
        exemplars=exemplars(compared.distances, found.labels),
        chosen=found.chosen,
        quality=quality(
            compared.distances,
            found.labels,
            rows=rows,
            report=lambda done, total: progress(done, total, STAGE),
        ),
        kind=compared.kind,
    )


def _run(
    algorithm: str,
    compared: ModelDistances,
    asked: ClusteringRequest,
    judge: PartitionSelector,
    progress: Progress,
) -> None:
    """Have the judge consider all that the algorithm finds."""
    options, seed, matrix = asked.options, asked.seed, compared.matrix
    if algorithm == "leiden":
        near = compared.near
        if near is None:
            k = asked.neighbors_of(len(compared.distances))
            near = nearest(compared.distances, k)
        leiden.cluster(compared.distances, near, options, seed, judge, progress)
        return
    assert matrix is not None  # Asked.needs_matrix
    if algorithm == "affinity_propagation":
        affinity_propagation.cluster(matrix, options, seed, judge, progress)
    elif algorithm == "agglomerative":
        agglomerative.cluster(MatrixDistances(matrix).matrix(), options, judge, progress)
    else:
        hdbscan.cluster(MatrixDistances(matrix).matrix(), options, judge, progress)


def _rows(models: int, clusters: int, seed: int) -> npt.NDArray[np.int64]:
    """The models that quality is measured on."""
    count = min(models, _MEASURED, max(1, _CELLS // max(1, clusters)))
    if count == models:
        return np.arange(models)
    return np.sort(np.random.default_rng(seed).choice(models, count, replace=False))
