"""The algorithms on planted groups: found by default, or as parameters demand."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import affinity_propagation
from sklearn.metrics import adjusted_rand_score

from app.kinship.clustering import request
from app.kinship.clustering.algorithms import affinity_propagation as affinity
from app.kinship.clustering.algorithms import hdbscan, leiden, partition_selector
from app.kinship.clustering.algorithms.partition_selector import PartitionSelector
from app.kinship.clustering.pipeline import Clusters, cluster_models
from app.kinship.clustering.request import ClusteringRequest
from app.kinship.clustering.snapshot import Snapshot
from modelkin import Support
from modelkin.core.clustering.centring import CentredDistances, without_strangers
from modelkin.core.clustering.clustering import NOISE, agreement
from modelkin.core.clustering.quality import ClusterDistances
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.distances import Distances, MatrixDistances, SignatureDistances
from modelkin.core.similarity.matrix import matrix
from modelkin.errors import InvalidParameter, JobCancelled, MissingExtra
from tests.support.app.space import silent
from tests.support.models.planted_clusters import GROUPS, Labels, M, planted
from tests.support.models.space_records import space_record
from tests.support.signatures import value_rows

ALGORITHMS = request.ALGORITHMS


def snapshot(supports: list[Support], asked: ClusteringRequest, without: int = 0) -> Snapshot:
    """The supports in a snapshot; the first ``without`` models sent only signatures."""
    packed = [None if i < without else PackedSupport.pack(s) for i, s in enumerate(supports)]
    names = tuple(f"m{i:03d}" for i in range(len(supports)))
    values = value_rows([support.signature(256, 1) for support in supports])
    plan = asked.resolve(len(supports))
    return Snapshot(plan, space_record(M), names, values, tuple(packed))


def clustered(supports: list[Support], algorithm: str, **options: Any) -> Clusters:
    """The groups that an algorithm finds."""
    return cluster_models(snapshot(supports, ClusteringRequest(algorithm, options)), silent)


def found_all(labels: Labels, groups: Clusters) -> bool:
    """Whether the groups are exactly the planted ones."""
    return bool(adjusted_rand_score(labels, groups.labels) == 1.0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("sizes", [GROUPS, (10, 10), (3, 3, 3, 3, 3), (5, 30)])
def test_planted_groups_are_found(algorithm: str, sizes: tuple[int, ...]) -> None:
    """By default each algorithm finds the groups, whatever their number."""
    supports, labels = planted(sizes)
    groups = clustered(supports, algorithm)
    assert found_all(labels, groups)
    assert len(sizes) == groups.exemplars.size
    assert groups.quality.silhouette is not None
    assert groups.quality.silhouette > 0.3
    assert groups.chosen
    assert ("exact", algorithm) == (groups.similarity, groups.algorithm)


@pytest.mark.parametrize(
    ("algorithm", "least"), [*zip(ALGORITHMS, [0.8, 0.9, 0.97, 0.95], strict=True)]
)
def test_strangers_do_not_hide_the_groups(algorithm: str, least: float) -> None:
    """With one unrelated model in five, the groups are still found."""
    supports, labels = planted((20, 15, 10, 10, 5), alone=15)
    groups = clustered(supports, algorithm)
    assert agreement(labels, groups.labels) >= least


def test_hdbscan_leaves_strangers_in_no_cluster() -> None:
    """Models far from all others are noise, and never an exemplar."""
    supports, labels = planted((20, 15, 10), alone=4)
    groups = clustered(supports, "hdbscan", min_cluster_size=5)
    assert set(np.flatnonzero(groups.labels == NOISE)) == set(np.flatnonzero(labels >= 3))
    assert [20, 15, 10] == np.bincount(groups.labels[groups.labels >= 0]).tolist()
    assert not set(groups.exemplars.tolist()) & set(np.flatnonzero(labels >= 3).tolist())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_unrelated_models_are_one_cluster(algorithm: str) -> None:
    """Without any structure no groups are made up, and there is no quality."""
    supports, _ = planted((), alone=30)
    groups = clustered(supports, algorithm)
    assert {0} == set(groups.labels.tolist())
    assert groups.quality.silhouette is None


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_equal_models_are_one_cluster(algorithm: str) -> None:
    """Models of one support are kin, all of them."""
    support = planted((1,))[0][0]
    assert {0} == set(clustered([support] * 7, algorithm).labels.tolist())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("count", [1, 2])
def test_one_and_two_models_are_one_cluster(algorithm: str, count: int) -> None:
    """Without other models to compare with, two models are one cluster."""
    groups = clustered(planted((), alone=count)[0], algorithm)
    assert [0] * count == groups.labels.tolist()
    assert [0] == groups.exemplars.tolist()
    assert (None, count) == (groups.quality.silhouette, groups.quality.models)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_three_models_are_clustered(algorithm: str) -> None:
    """Three models of one group are one cluster, by every algorithm."""
    assert {0} == set(clustered(planted((3,))[0], algorithm).labels.tolist())


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("agglomerative", {"n_clusters": 2}),
        ("agglomerative", {"distance_threshold": 0.5}),
        ("affinity_propagation", {"preference": 0.99}),
    ],
)
def test_parameters_part_two_models(algorithm: str, options: dict[str, Any]) -> None:
    """Two unrelated models are two clusters if a parameter says how near kin must be."""
    groups = clustered(planted((), alone=2)[0], algorithm, **options)
    assert [0, 1] == groups.labels.tolist()


@pytest.mark.parametrize("count", [1, 3, 9, 36])
def test_n_clusters_is_obeyed(count: int) -> None:
    """From one cluster to one for each model."""
    groups = clustered(planted()[0], "agglomerative", n_clusters=count)
    assert count == groups.exemplars.size
    assert {} == groups.chosen


def test_a_threshold_cuts_at_its_distance() -> None:
    """With single linkage, clusters farther apart than the threshold stay apart."""
    supports, labels = planted()
    similarity = matrix([PackedSupport.pack(support) for support in supports])
    groups = clustered(supports, "agglomerative", distance_threshold=0.7, linkage="single")
    assert found_all(labels, groups)
    apart = groups.labels[:, None] != groups.labels
    assert (1 - similarity)[apart].min() >= 0.7
    assert {"n_clusters": 4} == groups.chosen


def test_a_lower_preference_makes_fewer_clusters() -> None:
    """Affinity propagation obeys its preference."""
    supports, _ = planted()
    counts = [
        clustered(supports, "affinity_propagation", preference=p).exemplars.size
        for p in (-9.0, 0.4, 0.9)
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[1] < counts[2]


def test_the_chosen_preference_is_better_than_the_median() -> None:
    """Where the customary preference splits large groups, the chosen one does not."""
    supports, labels = planted((60, 60, 60), keep=0.6)
    similarity = matrix([PackedSupport.pack(support) for support in supports])
    median = float(np.median(similarity[~np.eye(180, dtype=bool)]))
    _, customary = affinity_propagation(
        similarity, preference=median, random_state=0, damping=0.9, max_iter=1000
    )
    assert len(set(customary.tolist())) > 3
    assert found_all(labels, clustered(supports, "affinity_propagation"))


def test_a_higher_resolution_makes_more_clusters() -> None:
    """Leiden obeys its resolution."""
    supports, _ = planted()
    few, many = (clustered(supports, "leiden", resolution=r).exemplars.size for r in (0.05, 30.0))
    assert few <= 4 < many


def test_groups_of_very_different_sizes_are_found_by_leiden() -> None:
    """Large groups are not split and small ones not absorbed, with unrelated models around."""
    supports, labels = planted((60, 30, 12, 6, 3), keep=0.65, alone=20)
    groups = clustered(supports, "leiden")
    assert agreement(labels, groups.labels) > 0.97
    assert "resolution" in groups.chosen


def test_strangers_make_no_cluster_of_their_own() -> None:
    """Models as similar as any two stay single, though they are each other's nearest."""
    supports, labels = planted((25, 25, 25), keep=0.9, alone=30)
    assert agreement(labels, clustered(supports, "leiden").labels) > 0.99


def test_too_many_communities_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """If even the coarsest of the fine resolutions leaves too many, nothing is merged."""
    monkeypatch.setattr(leiden, "_MAX_COMMUNITIES", 5)
    supports, labels = planted()
    groups = clustered(supports, "leiden")
    assert (True, {"resolution"}) == (found_all(labels, groups), set(groups.chosen))


def test_a_minimum_size_is_obeyed() -> None:
    """HDBSCAN makes no cluster smaller than the minimum."""
    groups = clustered(planted()[0], "hdbscan", min_cluster_size=9, min_samples=2)
    assert np.bincount(groups.labels[groups.labels >= 0]).min() >= 9
    assert {} == groups.chosen


def test_hdbscan_may_find_no_cluster_at_all() -> None:
    """If a parameter demands too much, all models are noise, which is a valid answer."""
    groups = clustered(planted((), alone=12)[0], "hdbscan", min_cluster_size=12)
    assert {NOISE} == set(groups.labels.tolist())
    assert (0, None) == (groups.exemplars.size, groups.quality.davies_bouldin)


@pytest.mark.slow
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_the_cut_is_the_best_of_all(seed: int) -> None:
    """Of all numbers of clusters, the one with the best silhouette is chosen, by C if clearer."""
    supports, _ = planted((9, 7, 5), keep=0.55, alone=4, seed=seed)
    distances = MatrixDistances(matrix([PackedSupport.pack(support) for support in supports]))
    centred = CentredDistances.of(distances)
    cuts = [
        clustered(supports, "agglomerative", n_clusters=k).labels for k in range(2, len(supports))
    ]
    best, best_by_c = (
        without_strangers(distances, max(cuts, key=score), centred.means, 0.03)
        for score in (partial(silhouette_of, distances), partial(silhouette_of, centred))
    )
    if silhouette_of(centred, best_by_c) > silhouette_of(centred, best) + 0.005:
        best = best_by_c
    np.testing.assert_array_equal(best, clustered(supports, "agglomerative").labels)


def silhouette_of(distances: Distances, labels: Labels) -> float:
    """The one that decides."""
    return ClusterDistances.on(distances, labels).silhouette(beside_single=False) or -1.0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_seed_gives_the_same_clusters(algorithm: str) -> None:
    """The same request gives the same answer, to the last figure."""
    supports, _ = planted((9, 8, 7), keep=0.45, alone=9)
    one, other = (clustered(supports, algorithm) for _ in range(2))
    np.testing.assert_array_equal(one.labels, other.labels)
    assert (one.chosen, one.quality) == (other.chosen, other.quality)


@pytest.mark.parametrize(("without", "kind"), [(36, "signature"), (5, "mixed"), (0, "exact")])
def test_models_without_supports_are_estimated(without: int, kind: str) -> None:
    """The groups are found from signatures, alone or beside supports, and the kind says so."""
    supports, labels = planted()
    groups = cluster_models(snapshot(supports, ClusteringRequest("agglomerative"), without), silent)
    assert (True, kind) == (found_all(labels, groups), groups.similarity)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_unrelated_signatures_are_one_cluster(algorithm: str) -> None:
    """The noise of estimates does not make up groups either."""
    supports, _ = planted((), alone=40)
    groups = cluster_models(snapshot(supports, ClusteringRequest(algorithm), 40), silent)
    assert {0} == set(groups.labels.tolist())


def test_many_models_are_compared_with_their_nearest_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the matrix of all pairs Leiden finds the groups, exactly compared or estimated."""
    monkeypatch.setattr(request, "_MAX_AFFINITY_MODELS", 10)
    supports, labels = planted((40, 30, 20, 10))
    for without, kind in ((0, "mixed"), (50, "mixed"), (100, "signature")):
        groups = cluster_models(snapshot(supports, ClusteringRequest(), without), silent)
        assert ("leiden", kind) == (groups.algorithm, groups.similarity)
        assert found_all(labels, groups)


def test_a_selector_that_samples_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured on a sample of the models, the same clustering is the best."""
    monkeypatch.setattr("app.kinship.clustering.algorithms.partition_selector._SAMPLE_SIZE", 12)
    supports, labels = planted()
    assert found_all(labels, clustered(supports, "agglomerative"))


def test_a_selector_without_a_cache_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distances computed again for each candidate give the same scores."""
    supports, labels = planted()
    distances = MatrixDistances(matrix([PackedSupport.pack(s) for s in supports]))
    signatures = SignatureDistances(snapshot(supports, ClusteringRequest()).values)
    for of, most in (distances, (10**7, 0)), (signatures, (10**7, 0, -1)):
        scores = set()
        for kept in most:
            monkeypatch.setattr(partition_selector, "_MAX_CACHED_DISTANCES", kept)
            monkeypatch.setattr(
                partition_selector, "_MAX_CACHED_MATCHES", 10**7 if kept >= 0 else 0
            )
            scores.add(PartitionSelector(of, seed=0).consider(labels))
        assert len(scores) == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_progress_is_reported_and_can_stop(algorithm: str) -> None:
    """Every stage reports within its bounds, and an exception of the callback ends it."""
    reports: list[tuple[int, int, str]] = []
    supports = snapshot(planted()[0], ClusteringRequest(algorithm))

    def record(done: int, total: int, stage: str = "") -> None:
        reports.append((done, total, stage))

    cluster_models(supports, record)
    assert len({stage for _, _, stage in reports}) >= 3
    assert all(0 <= done <= total or total == 0 for done, total, _ in reports)
    assert (36, 36, "measuring") == reports[-1]

    def stop(done: int, total: int, stage: str = "") -> None:
        if stage == reports[-2][2] or len(stage) > 9:
            raise JobCancelled("enough")

    with pytest.raises(JobCancelled):
        cluster_models(supports, stop)


def test_no_convergence_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Affinity propagation that runs out of rounds says what to do, with and without preference."""
    monkeypatch.setattr(affinity, "_MAX_ROUNDS", 20)
    supports, _ = planted()
    with pytest.raises(InvalidParameter, match="raise damping, or leave preference out"):
        clustered(supports, "affinity_propagation", preference=0.2)
    with pytest.raises(InvalidParameter, match="raise damping, or use agglomerative"):
        clustered(supports, "affinity_propagation")


@pytest.mark.parametrize(
    ("algorithm", "module"),
    [
        ("affinity_propagation", "sklearn.cluster"),
        ("hdbscan", "sklearn.cluster"),
        ("agglomerative", "scipy.cluster"),
        ("leiden", "igraph"),
    ],
)
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, module: str
) -> None:
    """Without the extra, one line says what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install 'modelkin-service\[clustering\]'"):
        clustered(planted()[0], algorithm)


@pytest.mark.parametrize(
    ("request_", "count", "field", "message"),
    [
        (ClusteringRequest(), 0, None, "the space has no model"),
        (ClusteringRequest(tags=("x",)), 0, "tags", "no model matches tags and models"),
        (ClusteringRequest(models=("a",)), 0, "models", "no model matches tags and models"),
        (ClusteringRequest(), 100_001, "tags", "takes 100000 models at most, and these are 100001"),
        (
            ClusteringRequest("hdbscan"),
            5001,
            "algorithm",
            "takes 5000 models at most, these are 5001",
        ),
        (
            ClusteringRequest("leiden", similarity="exact"),
            20_001,
            "similarity",
            "leave similarity at auto",
        ),
        (
            ClusteringRequest("agglomerative", {"n_clusters": 3}),
            2,
            "n_clusters",
            "there are 2 models",
        ),
        (
            ClusteringRequest("agglomerative", {"n_clusters": 2}),
            1,
            "n_clusters",
            "there is one model",
        ),
        (
            ClusteringRequest("hdbscan", {"min_cluster_size": 5}),
            4,
            "min_cluster_size",
            "there are 4 models",
        ),
        (ClusteringRequest("hdbscan", {"min_samples": 5}), 4, "min_samples", "there are 4 models"),
    ],
)
def test_requests_that_do_not_fit_the_models_are_refused(
    request_: ClusteringRequest, count: int, field: str | None, message: str
) -> None:
    """The error names the field and a way out."""
    with pytest.raises(InvalidParameter, match=message) as caught:
        request_.check_for(count)
    assert field == caught.value.field


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"algorithm": "kmeans"}, "algorithm", "must be one of affinity_propagation"),
        ({"n_clusters": 3}, "n_clusters", "is a parameter of agglomerative: name the algorithm"),
        (
            {"algorithm": "affinity_propagation", "n_clusters": 3},
            "n_clusters",
            "asks for affinity_propagation, which has preference, damping",
        ),
        ({"algorithm": "leiden", "preference": 0.1}, "preference", "of affinity_propagation"),
        ({"algorithm": "agglomerative", "min_samples": 2}, "min_samples", "of hdbscan"),
        ({"algorithm": "hdbscan", "resolution": 1.0}, "resolution", "of leiden"),
        (
            {"algorithm": "agglomerative", "n_clusters": 3, "distance_threshold": 0.5},
            "distance_threshold",
            "give one of them",
        ),
    ],
)
def test_parameters_that_make_no_sense_together(
    given: dict[str, Any], field: str, message: str
) -> None:
    """A parameter of another algorithm, or two with one meaning, are refused by name."""
    with pytest.raises(InvalidParameter, match=message) as caught:
        ClusteringRequest.from_json(given).check()
    assert field == caught.value.field


def test_a_request_survives_its_json() -> None:
    """The parameters of a job give the request again."""
    whole = ClusteringRequest("hdbscan", {"min_samples": 2}, 7, "signature", ("a", "b"), ("x", "y"))
    assert whole == ClusteringRequest.from_json(whole.to_json())
    assert ClusteringRequest() == ClusteringRequest.from_json(ClusteringRequest().to_json())


def test_a_scope_identifies_a_selection() -> None:
    """All models have one scope; equal selections have equal scopes, in any order."""
    assert "" == ClusteringRequest("leiden", seed=5).scope
    one, other = ClusteringRequest(tags=("a", "b")), ClusteringRequest("hdbscan", tags=("b", "a"))
    assert one.scope == other.scope != ClusteringRequest(models=("a", "b")).scope
    assert ClusteringRequest(models=("x", "y")).scope == ClusteringRequest(models=("y", "x")).scope


def test_supports_are_compared_if_that_takes_minutes_at_most() -> None:
    """The bytes to read decide what is compared exactly, unless the request does."""
    k = 80_000
    assert ClusteringRequest().resolve(1000).compares_supports(1_000_000, [k] * 1000)
    assert not ClusteringRequest().resolve(5000).compares_supports(10**9, [10**8] * 5000)
    assert (
        ClusteringRequest(similarity="exact").resolve(5000).compares_supports(10**9, [10**8] * 5000)
    )
    assert not ClusteringRequest(similarity="signature").resolve(10).compares_supports(M, [30] * 10)
    assert ClusteringRequest("leiden").resolve(10_000).compares_supports(1_000_000, [k] * 10_000)
    assert (
        not ClusteringRequest("leiden")
        .resolve(10_000)
        .compares_supports(11_000_000, [11 * k] * 10_000)
    )
    assert not ClusteringRequest().resolve(50).compares_supports(M, [30])
    assert ClusteringRequest().resolve(50).compares_supports(M, [30] * 50, max_mapped=49)
    assert (
        ClusteringRequest("leiden")
        .resolve(20_000)
        .compares_supports(50_000, [4000] * 20_000, max_mapped=10)
    )
    assert (
        not ClusteringRequest("leiden")
        .resolve(20_000)
        .compares_supports(500_000, [40_000] * 20_000, max_mapped=10)
    )
    assert not ClusteringRequest().resolve(50).compares_supports(10**6, [k] * 50, max_mapped=49)
    with pytest.raises(InvalidParameter, match="more than the 49 that can be open at a time here"):
        ClusteringRequest(similarity="exact").resolve(50).compares_supports(
            10**6, [k] * 50, max_mapped=49
        )


def test_hdbscan_sizes_stay_below_the_models() -> None:
    """HDBSCAN on few models tries no size that they could not fill."""
    for count in (3, 4, 7, 12):
        distances = MatrixDistances(matrix([PackedSupport.pack(s) for s in planted((count,))[0]]))
        selector = PartitionSelector(distances, seed=0)
        hdbscan.cluster(distances.matrix(), {}, selector, silent)
        assert count == selector.result().labels.size
