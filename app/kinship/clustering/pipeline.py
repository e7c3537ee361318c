"""The steps from a snapshot to its clusters: distances, algorithm, selection and quality.

One model is a cluster of its own. Two models are one cluster, unless a parameter splits them:
without other models there is nothing to compare their similarity with. This module stores nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.jobs.service import Progress
from app.kinship.clustering.algorithms import affinity_propagation, agglomerative, hdbscan, leiden
from app.kinship.clustering.algorithms.partition_selector import Partition, PartitionSelector
from app.kinship.clustering.distances import ModelDistances, SimilaritySource, compare_models
from app.kinship.clustering.request import ClusteringPlan
from app.kinship.clustering.snapshot import Snapshot
from app.kinship.clustering.strangers import NO_JUDGE, ClusterJudge
from modelkin.core.clustering.clustering import exemplars, mean_within
from modelkin.core.clustering.quality import ClusterQuality, quality
from modelkin.core.similarity.distances import MatrixDistances

__all__ = ["Clusters", "cluster_distances", "cluster_models"]

CENTRING: Final = "centring"
STAGE: Final = "measuring"
_QUALITY_SAMPLE_SIZE = 10_000
"""The most models whose quality is measured, against all; beyond it, a sample of this size."""
_MAX_QUALITY_PAIRS = 20_000_000
"""The most pairs of a model and a cluster whose distance is measured for the quality."""
_SPLITTING_OPTIONS = {"n_clusters", "distance_threshold", "preference"}
"""Parameters that can make two clusters of two models."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters of a snapshot's n models.

    Attributes:
        algorithm: the algorithm that found them.
        labels: cluster ids 0 to k - 1, the largest cluster first, -1 for no cluster; shape
            ``(n,)``.
        exemplars: rows of the models that represent each cluster; shape ``(k,)``.
        within: the mean S of the members of each cluster to each other and themselves; ``(k,)``.
        overall: the mean S of all models to each other and themselves.
        chosen: the parameters that the algorithm chose by itself.
        similarity: the source of the similarities: ``exact``, ``mixed`` or ``signature``.
        log10_p: the decimal logarithm of the P of the weakest link that holds each cluster
            together; 0 where nothing does, None of a single model and where chance is not known.
        kappa: the mean S beyond chance of the pairs of each cluster, likewise.
        note: what chance made of the clusters; None where nothing is to be said.
    """

    algorithm: str
    labels: npt.NDArray[np.int64]
    exemplars: npt.NDArray[np.int64]
    within: npt.NDArray[np.float64]
    overall: float
    chosen: dict[str, Any]
    quality: ClusterQuality
    similarity: SimilaritySource
    log10_p: tuple[float | None, ...] = ()
    kappa: tuple[float | None, ...] = ()
    note: str | None = None


def cluster_models(snapshot: Snapshot, progress: Progress) -> Clusters:
    """Find the clusters of a snapshot, as its plan says.

    Raises:
        InvalidParameter: the parameters give no result with these models.
        MissingExtra: the libraries of the algorithm are not installed.
        JobCancelled: ``progress`` raised it, because the job was cancelled.
    """
    pairwise = compare_models(snapshot, progress)
    is_weights = snapshot.space.importance.kind == "weight"
    judge = ClusterJudge(snapshot.chance, snapshot.untested, weights=is_weights)
    return cluster_distances(pairwise, snapshot.plan, progress, judge)


def cluster_distances(
    pairwise: ModelDistances,
    plan: ClusteringPlan,
    progress: Progress,
    judge: ClusterJudge = NO_JUDGE,
) -> Clusters:
    """Find the clusters of models with known distances, whatever was compared.

    Args:
        pairwise: the distances of as many models as the plan has, with a matrix if it requires one.
        progress: the same as for :func:`cluster_models`, whose errors it raises.
        judge: takes clusters apart that nothing but chance holds together.
    """
    count = plan.count
    if count == 1 or (count == 2 and not _SPLITTING_OPTIONS & set(plan.options)):
        found = Partition(np.zeros(count, np.int64), {}, None)
    else:
        if plan.free:
            progress(0, 1, CENTRING)
        selector = PartitionSelector(pairwise.distances, plan.seed, pairwise.error, plan.free)
        _run(pairwise, plan, selector, progress)
        found = selector.result()
    judged = judge.judge(found.labels, pairwise, plan)
    found = replace(found, labels=judged.labels)
    rows = _rows(count, int(found.labels.max()) + 1, plan.seed)
    progress(0, rows.size, STAGE)
    return Clusters(
        algorithm=plan.algorithm,
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
        similarity=pairwise.similarity,
        log10_p=judged.log10_p,
        kappa=judged.kappa,
        note=judged.note,
    )


def _run(
    pairwise: ModelDistances,
    plan: ClusteringPlan,
    selector: PartitionSelector,
    progress: Progress,
) -> None:
    """Pass all partitions that the algorithm finds to the selector."""
    options, seed, matrix = plan.options, plan.seed, pairwise.matrix
    if plan.algorithm == "leiden":
        near = pairwise.nearest(plan.neighbors)
        leiden.cluster(pairwise.distances, near, options, seed, selector, progress)
        return
    assert matrix is not None  # ClusteringPlan.matrix
    if plan.algorithm == "affinity_propagation":
        affinity_propagation.cluster(matrix, options, seed, selector, progress)
    elif plan.algorithm == "agglomerative":
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
