"""Invalid clusterings and policies: refused at once, with the reason and the field."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import modelkin
from tests.support.fixtures import on_one_database
from tests.support.http_space import SUPPORT, Space, assert_problem, ok
from tests.support.models.planted_clusters import GROUPS, M, named, planted

pytestmark = on_one_database


@pytest.fixture
def space(http: httpx.Client) -> Space:
    """An empty space for the planted groups."""
    return Space(http, M)


@pytest.fixture(scope="module")
def kin(http: httpx.Client) -> Space:
    """A space with four groups of models for invalid requests; no job is enqueued."""
    made = Space(http, M)
    made.put_all(named(planted(GROUPS)[0]))
    return made


def requested(space: Space, **body: Any) -> httpx.Response:
    """The answer to a request for a clustering."""
    return space.http.post(space.path("clusterings"), json=body)


def test_no_models_are_refused(space: Space) -> None:
    """A space without models has nothing to cluster, and says so at once."""
    assert "the space has no model" in assert_problem(requested(space), 422, "invalid_parameter")
    nothing = space.http.get(space.path("clusterings/latest"))
    assert "request one with POST" in assert_problem(nothing, 404, "clustering_not_found")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"algorithm": "kmeans"}, "algorithm"),
        ({"n_clusters": 3}, "n_clusters"),
        ({"algorithm": "affinity_propagation", "n_clusters": 3}, "n_clusters"),
        ({"algorithm": "leiden", "preference": 0.2}, "preference"),
        ({"algorithm": "hdbscan", "resolution": 1.0}, "resolution"),
        ({"algorithm": "agglomerative", "n_clusters": 37}, "n_clusters"),
        ({"algorithm": "agglomerative", "n_clusters": 0}, "n_clusters"),
        ({"algorithm": "agglomerative", "n_clusters": 2.0}, "n_clusters"),
        ({"algorithm": "agglomerative", "n_clusters": True}, "n_clusters"),
        (
            {"algorithm": "agglomerative", "n_clusters": 2, "distance_threshold": 0.5},
            "distance_threshold",
        ),
        ({"algorithm": "agglomerative", "linkage": "ward"}, "linkage"),
        ({"algorithm": "hdbscan", "min_cluster_size": 37}, "min_cluster_size"),
        ({"algorithm": "hdbscan", "min_cluster_size": 1}, "min_cluster_size"),
        ({"algorithm": "hdbscan", "min_samples": 99}, "min_samples"),
        ({"algorithm": "affinity_propagation", "damping": 1.0}, "damping"),
        ({"algorithm": "affinity_propagation", "preference": 1e300}, "preference"),
        ({"seed": -1}, "seed"),
        ({"seed": "1"}, "seed"),
        ({"similarity": "cosine"}, "similarity"),
        ({"tags": ["nowhere"]}, "tags"),
        ({"models": []}, "models"),
        ({"models": "org/m000"}, "models"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_invalid_parameters_are_refused(kin: Space, body: Any, field: str) -> None:
    """Parameters out of range, of another algorithm or too large are a 422 by name."""
    assert_problem(requested(kin, **body), 422, "invalid_parameter", field)
    assert (
        []
        == ok(kin.http.get("/v1/jobs", params={"space": kin.name, "kind": "clustering"}))["items"]
    )


def test_unknown_models_are_named(kin: Space) -> None:
    """A model that does not exist is a 404 with its name, as in a matrix."""
    detail = assert_problem(
        requested(kin, models=["org/m000", "nowhere", "x"]), 404, "model_not_found"
    )
    assert "'nowhere'" in detail
    assert "1 more" in detail
    assert_problem(requested(kin, models=["a//b"]), 422, "invalid_name", "models[0]")
    assert_problem(requested(kin, tags=["x", "a\0"]), 422, "invalid_name", "tags[1]")


def test_a_body_of_another_type_is_refused(kin: Space) -> None:
    """A request is JSON, whole and alone."""
    headers = {"Content-Type": "text/plain"}
    url = kin.path("clusterings")
    plain = kin.http.post(url, content="{}", headers=headers)
    assert_problem(plain, 415, "unsupported_media_type")
    for text in ('{"seed": NaN}', "[]", '{"seed":', '{"seed": 1, "seed": 2}'):
        answer = kin.http.post(url, content=text, headers={"Content-Type": "application/json"})
        assert_problem(answer, 422, "invalid_parameter")


@pytest.mark.parametrize(
    "which", ["nowhere", "0198c7a2-5b7e-7cc3-98c4-dc0c0c07398f", "a%00b", "%20"]
)
def test_an_unknown_clustering_is_not_found(kin: Space, which: str) -> None:
    """For any string as id, an unknown clustering is not found."""
    for path in (f"clusterings/{which}", f"clusterings/{which}/assign"):
        url = f"/v1/spaces/{kin.name}/{path}"
        if path.endswith("assign"):
            content = planted((1,))[0][0].to_bytes()
            answer = kin.http.post(url, content=content, headers={"Content-Type": SUPPORT})
        else:
            answer = kin.http.get(url)
        assert_problem(answer, 404, "clustering_not_found")
    assert_problem(
        kin.http.delete(f"/v1/spaces/{kin.name}/clusterings/{which}"), 404, "clustering_not_found"
    )


def test_a_policy_is_set_and_read(client: modelkin.Client, space: Space) -> None:
    """A policy can be set, read and deleted; setting it again changes nothing."""
    url = space.path("clustering-policy")
    missing = space.http.get(url)
    assert_problem(missing, 404, "clustering_not_found")
    space.put_all(named(planted((3,))[0]))
    body = {"algorithm": "agglomerative", "parameters": {"linkage": "complete"}, "after_changes": 5}
    policy = ok(space.http.put(url, json=body))
    assert {
        "algorithm": "agglomerative",
        "parameters": {"linkage": "complete", "seed": 0, "similarity": "auto"},
        "after_changes": 5,
        "every_seconds": None,
        "debounce_seconds": 30,
        "pending_changes": 3,
        "last_at": None,
    } == policy
    assert policy == ok(space.http.put(url, json=body)) == ok(space.http.get(url))
    stored_policy = client.clusterings.policy.get(space.name)
    assert (5, None, 30, 3) == (
        stored_policy.after_changes,
        stored_policy.every_seconds,
        stored_policy.debounce_seconds,
        stored_policy.pending_changes,
    )
    changed = client.clusterings.policy.set(
        space.name, every_seconds=60, debounce_seconds=0, seed=4
    )
    assert (None, None, 60, 4) == (
        changed.algorithm,
        changed.after_changes,
        changed.every_seconds,
        changed.parameters["seed"],
    )
    client.clusterings.policy.delete(space.name)
    assert_problem(space.http.get(url), 404, "clustering_not_found")
    assert_problem(space.http.delete(url), 404, "clustering_not_found")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "after_changes"),
        ({"after_changes": 0}, "after_changes"),
        ({"after_changes": 2**60}, "after_changes"),
        ({"every_seconds": 0}, "every_seconds"),
        ({"every_seconds": 1.5}, "every_seconds"),
        ({"after_changes": 1, "debounce_seconds": -1}, "debounce_seconds"),
        ({"after_changes": 1, "algorithm": "kmeans"}, "algorithm"),
        ({"after_changes": 1, "parameters": {"n_clusters": 2}}, "n_clusters"),
        ({"after_changes": 1, "parameters": {"algorithm": "leiden"}}, "parameters.algorithm"),
        ({"after_changes": 1, "parameters": []}, "parameters"),
    ],
)
def test_an_invalid_policy_is_refused(space: Space, body: Any, field: str) -> None:
    """A policy without a time, or with an invalid clustering, is a 422 by name."""
    answer = space.http.put(space.path("clustering-policy"), json=body)
    assert_problem(answer, 422, "invalid_parameter", field)
