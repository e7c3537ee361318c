"""Average linkage and its cut are scipy's, and groups are found where there are any."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score, silhouette_score

from modelkin.core.clustering.linkage import Division, average_linkage, cut, groups

Floats = npt.NDArray[np.float64]


def similarities(
    sizes: list[int], within: float, between: float, noise: float = 0.02, seed: int = 0
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """S of groups of these sizes, and who is in which."""
    own = np.repeat(np.arange(len(sizes)), sizes)
    spread = np.random.default_rng(seed).normal(0, noise, (own.size, own.size))
    similarity = np.where(own[:, None] == own, within, between) + (spread + spread.T) / 2
    np.fill_diagonal(similarity, 1.0)
    return similarity.clip(0, 1), own


@pytest.mark.slow
@given(st.integers(2, 40), st.integers(0, 1000))
def test_every_cut_is_scipys(n: int, seed: int) -> None:
    """Distances that differ have one tree, and its cuts are the same partitions."""
    points = np.random.default_rng(seed).random((n, 3))
    distances = np.sqrt(((points[:, None] - points) ** 2).sum(-1))
    merges = average_linkage(distances)
    theirs = hierarchy.linkage(squareform(distances, checks=False), "average")
    for count in range(1, n + 1):
        expected = hierarchy.fcluster(theirs, count, "maxclust")
        assert adjusted_rand_score(expected, cut(merges, count)) == 1.0


@pytest.mark.slow
@given(st.integers(1, 30), st.integers(0, 1000), st.floats(0.01, 1.0))
def test_a_distance_cuts_where_sklearn_does(n: int, seed: int, far: float) -> None:
    """Clusters that are as far apart stay apart."""
    points = np.random.default_rng(seed).random((n, 3))
    distances = np.sqrt(((points[:, None] - points) ** 2).sum(-1)) / 3**0.5
    labels, _ = Division(distance_threshold=far).groups(1 - distances)
    if n == 1:
        assert [0] == labels.tolist()
        return
    theirs = AgglomerativeClustering(
        n_clusters=None, metric="precomputed", linkage="average", distance_threshold=far
    ).fit_predict(distances)
    assert adjusted_rand_score(theirs, labels) == 1.0


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_number_of_clusters_has_the_silhouette_of_sklearn(count: int) -> None:
    """The largest first, whatever chance would explain."""
    similarity, _ = similarities([8, 7, 5], 0.6, 0.5)
    labels, silhouette = Division(n_clusters=count).groups(similarity)
    sizes = np.bincount(labels)
    assert count == sizes.size
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    if sizes.min() > 1:
        expected = silhouette_score(1 - similarity, labels, metric="precomputed")
        assert expected == pytest.approx(silhouette)


def test_equal_distances_make_a_tree_too() -> None:
    """If all distances are equal, each item is still merged exactly once."""
    merges = average_linkage(np.ones((9, 9)))
    assert [0] * 9 == cut(merges, 1).tolist()
    assert 9 == np.unique(cut(merges, 9)).size


@pytest.mark.parametrize("sizes", [[3, 3], [20, 20], [30, 6, 4], [2, 2, 2, 2], [5, 1, 5], [90, 80]])
def test_groups_are_found(sizes: list[int]) -> None:
    """Related models are one group, the largest first, with sklearn's silhouette."""
    similarity, own = similarities(sizes, 0.75, 0.4)
    labels, silhouette = groups(similarity)
    assert 1.0 == adjusted_rand_score(own, labels)
    assert sorted(sizes, reverse=True) == np.bincount(labels).tolist()
    if min(sizes) > 1:
        expected = silhouette_score(1 - similarity, own, metric="precomputed")
        assert expected == pytest.approx(silhouette)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12, 40])
@pytest.mark.parametrize(("level", "noise"), [(0.4, 0.02), (0.97, 0.02), (1.0, 0.0)])
def test_no_groups_are_made_up(n: int, level: float, noise: float) -> None:
    """Models that are all as far from each other, or nearly the same, are one group."""
    for seed in range(5):
        labels, silhouette = groups(similarities([n], level, level, noise, seed)[0])
        assert ([0] * n, None) == (labels.tolist(), silhouette)


def test_groups_are_apart_in_s_itself() -> None:
    """What is between groups counts from the separation on, however good the silhouette."""
    similarity, own = similarities([6, 6], 0.98, 0.93, noise=0.001)
    assert [0] * 12 == groups(similarity)[0].tolist()
    assert 1.0 == adjusted_rand_score(own, groups(similarity, separation=0.04)[0])


def test_the_noise_of_signatures_makes_no_groups() -> None:
    """Estimates of short signatures vary by chance: unrelated models stay one group."""
    h, rng = 32, np.random.default_rng(4)
    jaccard = rng.binomial(h, 0.1, (30, 30)) / h
    jaccard = np.triu(jaccard, 1) + np.triu(jaccard, 1).T + np.eye(30)
    similarity = 2 * jaccard / (1 + jaccard)
    assert [0] * 30 == groups(similarity, num_perm=h, separation=0.0)[0].tolist()
