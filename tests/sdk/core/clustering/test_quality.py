"""The quality of a clustering, compared with scikit-learn on points of the same distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    calinski_harabasz_score,
    davies_bouldin_score,
    silhouette_samples,
    silhouette_score,
)

from modelkin.core.clustering.quality import NOISE, ClusterDistances, quality
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.distances import MatrixDistances, SignatureDistances, blocks
from modelkin.core.similarity.matrix import matrix
from modelkin.core.support import Support

M, K = 600, 60

Labels = npt.NDArray[np.int64]


def grouped(seed: int, n: int = 40, groups: int = 4) -> tuple[npt.NDArray[np.float64], Labels, Any]:
    """Indicator vectors over √K of supports in groups, their groups, and their distances."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % groups)
    bases = [rng.choice(M, K, replace=False) for _ in range(groups)]
    supports = []
    for label in labels:
        kept = rng.choice(bases[label], 40, replace=False)
        others = np.setdiff1d(np.arange(M), kept)
        indices = np.sort(np.concatenate([kept, rng.choice(others, K - 40, replace=False)]))
        supports.append(Support.from_indices(indices, M))
    points = np.zeros((n, M))
    for row, support in zip(points, supports, strict=True):
        row[support.indices] = 1 / np.sqrt(K)
    return points, labels, MatrixDistances(matrix([PackedSupport.pack(s) for s in supports]))


@pytest.mark.parametrize("groups", [2, 4, 13])
def test_figures_are_scikit_learns_on_the_supports(groups: int) -> None:
    """Without any point, the figures equal those of the supports' own indicator vectors."""
    points, labels, distances = grouped(groups, groups=groups)
    found = quality(distances, labels)
    assert found.silhouette is not None
    assert found.silhouette == pytest.approx(
        silhouette_score(distances.matrix(), labels, metric="precomputed")
    )
    assert pytest.approx(davies_bouldin_score(points, labels)) == found.davies_bouldin
    assert pytest.approx(calinski_harabasz_score(points, labels)) == found.calinski_harabasz


@pytest.mark.slow
@given(labels=st.lists(st.integers(0, 5), min_size=12, max_size=12), seed=st.integers(0, 99))
def test_figures_of_any_labels(labels: list[int], seed: int) -> None:
    """However bad the clusters, single models among them, the figures are scikit-learn's."""
    points, _, distances = grouped(seed, n=12)
    own = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    found = quality(distances, own)
    if own.max() == 0:
        assert (None, None, None) == (
            found.silhouette,
            found.davies_bouldin,
            found.calinski_harabasz,
        )
    elif own.max() < 11:
        assert pytest.approx(davies_bouldin_score(points, own)) == found.davies_bouldin
        assert pytest.approx(calinski_harabasz_score(points, own)) == found.calinski_harabasz
        expected = silhouette_score(distances.matrix(), own, metric="precomputed")
        assert pytest.approx(expected, abs=1e-12) == found.silhouette


def test_a_model_in_no_cluster_counts_nothing_for_the_silhouette() -> None:
    """Noise is no cluster: it adds 0 to the mean, and the other figures leave it out."""
    points, labels, distances = grouped(3)
    labels = labels.copy()
    labels[:5] = NOISE
    inner = distances.matrix()[5:, 5:]
    samples = silhouette_samples(inner, labels[5:], metric="precomputed")
    found = quality(distances, labels)
    assert pytest.approx(samples.sum() / labels.size) == found.silhouette
    assert pytest.approx(davies_bouldin_score(points[5:], labels[5:])) == found.davies_bouldin
    expected = calinski_harabasz_score(points[5:], labels[5:])
    assert pytest.approx(expected) == found.calinski_harabasz


def test_every_model_alone_has_a_silhouette_of_nothing() -> None:
    """As many clusters as models: silhouette 0, and no variance within to divide by."""
    _, _, distances = grouped(1, n=6)
    found = quality(distances, np.arange(6))
    assert (0.0, None, 0.0) == (found.silhouette, found.calinski_harabasz, found.davies_bouldin)


@pytest.mark.parametrize("label", [0, NOISE])
def test_too_few_clusters_have_no_quality(label: int) -> None:
    """One cluster, or none, is neither good nor bad."""
    _, _, distances = grouped(1, n=6)
    found = quality(distances, np.full(6, label))
    assert (None, None, None) == (found.silhouette, found.davies_bouldin, found.calinski_harabasz)
    assert ClusterDistances.on(distances, np.full(6, label)).silhouette() is None


def test_equal_models_have_a_quality() -> None:
    """Clusters without any spread, or in one place, divide nothing by zero."""
    distances = MatrixDistances(np.ones((6, 6)))
    found = quality(distances, np.array([0, 0, 0, 1, 1, 1]))
    assert (0.0, 0.0, None) == (found.silhouette, found.davies_bouldin, found.calinski_harabasz)


def test_a_sample_tells_what_all_tell() -> None:
    """Measured on half the models against all, the figures come near those of all."""
    _, labels, distances = grouped(5, n=400)
    rows = np.sort(np.random.default_rng(0).choice(400, 200, replace=False))
    whole, sampled = quality(distances, labels), quality(distances, labels, rows=rows)
    assert (400, 200) == (whole.models, sampled.models)
    assert whole.silhouette == pytest.approx(sampled.silhouette, rel=0.05)
    assert whole.davies_bouldin == pytest.approx(sampled.davies_bouldin, rel=0.05)
    assert whole.calinski_harabasz == pytest.approx(sampled.calinski_harabasz, rel=0.05)


def test_single_models_may_be_nobodys_next_cluster() -> None:
    """Without single models to be beside, each counts 0 and the others are as if it was not there;
    where all others are single they are what there is to be beside.
    """
    _, labels, distances = grouped(4, n=30, groups=3)
    labels = labels.copy()
    alone = np.flatnonzero(labels == 2)
    labels[alone] = 2 + np.arange(alone.size)
    rest = np.flatnonzero(labels < 2)
    inner = distances.matrix()[np.ix_(rest, rest)]
    samples = silhouette_samples(inner, labels[rest], metric="precomputed")
    measured = ClusterDistances.on(distances, labels)
    assert samples.sum() / 30 == pytest.approx(measured.silhouette(beside_single=False))
    assert measured.silhouette() != measured.silhouette(beside_single=False)
    only = np.unique(np.where(labels == 0, 0, 1 + np.arange(30)), return_inverse=True)[1]
    one = ClusterDistances.on(distances, only)
    assert one.silhouette() == one.silhouette(beside_single=False)


def test_merged_clusters_are_measured_as_if_anew() -> None:
    """Merging what was measured gives the figures of measuring what is merged, for a sample too."""
    _, labels, distances = grouped(7, n=60, groups=9)
    groups = np.array([0, 1, 0, 2, 3, 3, 1, 0, 2])
    for rows in (np.arange(60), np.arange(0, 60, 4)):
        merged = ClusterDistances.on(distances, labels, rows).merge(groups)
        anew = ClusterDistances.on(distances, groups[labels], rows)
        assert merged.silhouette() == pytest.approx(anew.silhouette())
        assert merged.davies_bouldin() == pytest.approx(anew.davies_bouldin())
        assert merged.calinski_harabasz() == pytest.approx(anew.calinski_harabasz())


def test_mean_distances_between_clusters() -> None:
    """From cluster to cluster they are the means of the blocks of the matrix."""
    _, labels, distances = grouped(7, n=30, groups=3)
    full = distances.matrix()
    expected = [[full[np.ix_(labels == a, labels == b)].mean() for b in range(3)] for a in range(3)]
    np.testing.assert_allclose(expected, ClusterDistances.on(distances, labels).between())


def test_progress_is_told_to_the_end() -> None:
    """The report counts up to all the rows."""
    _, labels, distances = grouped(1)
    reports: list[tuple[int, int]] = []
    quality(distances, labels, report=lambda done, total: reports.append((done, total)))
    assert (40, 40) == reports[-1]


def test_signatures_give_the_distances_of_their_estimates() -> None:
    """A block is 1 − 2J / (1 + J) of the share of equal values, row by row."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 3, (7, 64), dtype=np.uint32)
    distances = SignatureDistances(values)
    jaccard = (values[:, None] == values).mean(axis=2)
    expected = 1 - 2 * jaccard / (1 + jaccard)
    np.testing.assert_allclose(expected, distances.block(np.arange(7)))
    np.testing.assert_allclose(
        expected[[5, 2]][:, [1, 6, 5]], distances.block(np.array([5, 2]), np.array([1, 6, 5]))
    )
    assert 7 == len(distances)


def test_blocks_cover_all_rows_in_order() -> None:
    """However large the rows asked for, they come once each, in order, with all columns."""
    distances = SignatureDistances(np.zeros((5000, 1), np.uint32))
    rows = np.arange(0, 5000, 3)
    found = [(some, block.shape) for some, block in blocks(distances, rows)]
    assert len(found) > 1
    np.testing.assert_array_equal(rows, np.concatenate([some for some, _ in found]))
    assert all((some.size, 5000) == shape for some, shape in found)
