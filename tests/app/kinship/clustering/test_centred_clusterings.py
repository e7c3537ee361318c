"""Clusterings whose number of clusters is free: what all models have in common is taken out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import adjusted_rand_score

from app.kinship.clustering.algorithms import partition_selector
from app.kinship.clustering.distances import ModelDistances
from app.kinship.clustering.pipeline import Clusters, cluster_distances
from app.kinship.clustering.repositories import clusterings
from app.kinship.clustering.request import ALGORITHMS, ClusteringRequest
from demo.planted import plant as planted_clients
from modelkin.core.clustering.clustering import agreement
from modelkin.core.similarity.distances import MatrixDistances, SignatureDistances
from modelkin.core.similarity.nearest import nearest
from tests.support.app.space import AppSpace, silent
from tests.support.federations.clients import Kind, similarity, supports
from tests.support.fixtures import on_one_database
from tests.support.models.planted_clusters import planted
from tests.support.signatures import value_rows

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def clustered(found: Floats, algorithm: str, **options: Any) -> Clusters:
    """The clusters of a matrix of similarities."""
    pairwise = ModelDistances(MatrixDistances(found), "exact", None, found, None)
    return cluster_distances(
        pairwise, ClusteringRequest(algorithm, options).resolve(len(found)), silent
    )


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", ["supports", "classes"])
@pytest.mark.parametrize(
    ("scenario", "least"), [("rotations", 0.95), ("styles", 0.95), ("swapped labels", 0.85)]
)
def test_groups_in_groups_are_found(
    scenario: str, least: float, kind: Kind, algorithm: str
) -> None:
    """By each algorithm, from supports and from subspaces, with nothing said of their number."""
    found = []
    for seed in range(3):
        own = planted_clients(scenario, seed=seed).groups
        labels = clustered(similarity(scenario, kind, seed), algorithm).labels
        found.append(adjusted_rand_score(own, labels))
    assert np.mean(found) >= least


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", ["supports", "classes", "whole"])
def test_clients_with_alike_data_are_one_cluster(kind: Kind, algorithm: str) -> None:
    """No group is made up of what differs by chance."""
    for seed in range(2):
        assert {0} == set(clustered(similarity("iid", kind, seed), algorithm).labels.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_parameter_that_decides_is_obeyed(algorithm: str) -> None:
    """With it nothing is taken out, and nothing judged: rotations by half a turn stay together."""
    options: dict[str, Any] = {
        "affinity_propagation": {"preference": -1.0},
        "leiden": {"resolution": 0.5},
        "agglomerative": {"n_clusters": 2},
        "hdbscan": {"min_cluster_size": 10},
    }
    rotated = similarity("rotations", "supports", 0)
    labels = clustered(rotated, algorithm, **options[algorithm]).labels
    groups = planted_clients("rotations", seed=0).groups
    assert 1.0 == adjusted_rand_score(groups % 2, labels)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["leiden", "agglomerative", "hdbscan"])
def test_a_large_group_stays_whole(algorithm: str) -> None:
    """A group that makes most of the mean has little left of it, and is one cluster nonetheless."""
    supports_, own = planted((80, 10), alone=5)
    signatures = SignatureDistances(value_rows([s.signature(256, 1) for s in supports_]))
    found = 1.0 - signatures.block(np.arange(95))
    assert agreement(own, clustered(found, algorithm).labels) > 0.99


@pytest.mark.slow
def test_signatures_show_groups_in_groups() -> None:
    """The errors of estimates do not hide what is left."""
    clients = planted_clients("rotations", seed=0)
    values = value_rows([support.signature(256, 1) for support in supports(clients, 0)])
    distances = SignatureDistances(values)
    whole = 1.0 - distances.block(np.arange(24))
    pairwise = ModelDistances(MatrixDistances(whole), "signature", distances.error, whole, None)
    labels = cluster_distances(
        pairwise, ClusteringRequest("leiden").resolve(len(whole)), silent
    ).labels
    assert 1.0 == adjusted_rand_score(clients.groups, labels)


def nested(sizes: tuple[int, ...], seed: int = 0) -> tuple[Floats, Labels]:
    """Points of groups, of which each two are nearer to each other; and the groups."""
    rng = np.random.default_rng(seed)
    own = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    common, pairs = rng.normal(size=60), rng.normal(size=(len(sizes), 60))[own // 2]
    groups = rng.normal(size=(len(sizes), 60))[own]
    points = 1.2 * common + 0.9 * pairs + 0.8 * groups + 0.8 * rng.normal(size=(own.size, 60))
    return points / np.linalg.norm(points, axis=1)[:, None], own


@pytest.mark.slow
def test_many_models_lose_the_mean_of_a_sample() -> None:
    """Beyond 2,000 the mean of a seeded sample is taken out, and groups in groups are found."""
    points, own = nested((600, 550, 550, 500))
    distances = MatrixDistances(np.clip(points @ points.T, 0, 1))
    plan = ClusteringRequest("leiden", seed=3).resolve(own.size)
    found = [
        cluster_distances(
            ModelDistances(distances, "signature", None, None, nearest(distances, 15)),
            plan,
            silent,
        )
        for _ in range(2)
    ]
    assert 1.0 == adjusted_rand_score(own, found[0].labels)
    np.testing.assert_array_equal(found[0].labels, found[1].labels)


def test_a_judge_without_a_cache_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more models than fit in memory, C is computed from signatures at each call."""
    supports_, own = planted((40, 30, 20, 10))
    signatures = SignatureDistances(value_rows([s.signature(256, 1) for s in supports_]))
    scores = set()
    for distances, matches in (10**7, 10**7), (0, 10**7), (0, 0):
        monkeypatch.setattr(partition_selector, "_MAX_CACHED_DISTANCES", distances)
        monkeypatch.setattr(partition_selector, "_MAX_CACHED_MATCHES", matches)
        selector = partition_selector.PartitionSelector(signatures, 0, signatures.error, True)
        scores.add(tuple(round(score, 9) for score in selector.consider(own)))
    assert 1 == len(scores)


# --- the mean within each cluster -----------------------------------------------------------------


@pytest.mark.slow
def test_the_mean_within_is_that_of_s() -> None:
    """Each member with each, and with itself, as a centroid's squared length needs it."""
    found = similarity("rotations", "supports", 0)
    clusters = clustered(found, "agglomerative")
    expected = [
        found[np.ix_(clusters.labels == cluster, clusters.labels == cluster)].mean()
        for cluster in range(4)
    ]
    np.testing.assert_allclose(expected, clusters.within)
    assert found.mean() == pytest.approx(clusters.overall)


@on_one_database
def test_the_mean_within_is_stored(kin: AppSpace) -> None:
    """Of each cluster, in the order of its ids; a clustering of before has none."""
    kin.cluster()
    with kin.database.reading() as session:
        record = clusterings.find_latest(session, kin.space)
        assert record is not None
        content = clusterings.content(session, record)
    assert len(content.clusters) == len(content.within) == 3
    assert all(0.3 < within < 1.0 for within in content.within)
    assert content.overall is not None
    assert 0.0 < content.overall < min(content.within)
