"""Newcomers that join their cluster: its mean runs on, and later answers count them."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from app.tenancy.auth.service import KeyService
from modelkin import fit_subspace
from modelkin.core.clustering.clustering import mean_with_newcomer, mean_within
from modelkin.core.similarity.distances import MatrixDistances
from modelkin.core.subspaces.affinity import affinities
from modelkin.errors import ApiError
from tests.app.models.subspaces.test_subspaces_api import (
    ARRIVING,
    GROUPS,
    NEW,
    STORED,
    ask,
    new_space,
    put,
)
from tests.app.models.subspaces.test_subspaces_live import cluster_of
from tests.support.app.harness import open_keyed_app
from tests.support.backends import Backend
from tests.support.http_space import Space, assert_problem, ok

NEWCOMERS = {f"new-{row}": each for row, each in enumerate(ARRIVING)}


@pytest.fixture(scope="module")
def wards(working_http: httpx.Client) -> Space:
    """24 clients, and newcomers."""
    space = new_space(working_http, compare="whole")
    for name, subspace in (STORED | NEWCOMERS).items():
        put(space, name, subspace).raise_for_status()
    return space


@pytest.fixture
def made(wards: Space) -> str:
    """A new clustering of the clients in four, by all their samples."""
    return cluster(wards)


def cluster(space: Space, **more: str) -> str:
    body = {"algorithm": "agglomerative", "n_clusters": 4, "models": [*STORED], **more}
    job: str = space.http.post(space.path("clusterings"), json=body).json()["id"]
    end = time.monotonic() + 60
    while (found := ok(space.http.get(f"/v1/jobs/{job}")))["state"] != "succeeded":
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return str(found["result"]["clustering"])


def join(space: Space, clustering: str, model: str, **headers: str) -> httpx.Response:
    url = f"{space.path('clusterings')}/{clustering}/join"
    return space.http.post(url, json={"model": model}, headers=headers)


def show(space: Space, clustering: str) -> dict[str, Any]:
    return ok(space.http.get(f"{space.path('clusterings')}/{clustering}"))


def test_a_running_mean_is_the_mean_of_all() -> None:
    """One by one, or all at once: the squared length of the centroid is the same."""
    units = np.abs(np.random.default_rng(3).normal(size=(9, 4)))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    within, similarity = 1.0, units @ units.T
    for size in range(1, 9):
        within = mean_with_newcomer(within, size, float(similarity[size, :size].mean()))
        centroid = units[: size + 1].mean(axis=0)
        assert pytest.approx(float(centroid @ centroid), abs=1e-12) == within
    distances = MatrixDistances(similarity)
    assert pytest.approx(mean_within(distances, np.zeros(9, np.int64))[0], abs=1e-12) == within


def test_newcomers_join_the_cluster_that_they_are_assigned_to(wards: Space, made: str) -> None:
    """And are members of it, while an assignment leaves all as it is."""
    before = show(wards, made)
    labels, groups = cluster_of(before), NEW.groups.tolist()
    for (name, subspace), group in zip(NEWCOMERS.items(), groups, strict=True):
        asked = ok(ask(wards, f"clusterings/{made}/assign", subspace))
        assert cluster_of(show(wards, made)) == labels
        joined = ok(join(wards, made, name))
        assert asked["cluster"] == joined["cluster"]
        labels[name] = joined["cluster"]
        member = next(other for other, own in GROUPS.items() if own == group)
        assert labels[member] == labels[name]
    after = show(wards, made)
    assert cluster_of(after) == labels
    assert (24 + 8, 4) == (after["models"], len(after["clusters"]))
    assert before["quality"] == after["quality"]
    sizes = [each["size"] for each in after["clusters"]]
    assert sorted(sizes, reverse=True) == sizes
    for each in after["clusters"]:
        assert each["exemplar"] in each["members"]


def test_a_later_newcomer_is_compared_with_those_that_joined(wards: Space, made: str) -> None:
    """The margin and the S within are those of all members, computed here."""
    for name in NEWCOMERS:
        ok(join(wards, made, name))
    labels = cluster_of(show(wards, made))
    every = STORED | NEWCOMERS
    last = fit_subspace(np.random.default_rng(1).normal(size=(40, 64)) + 3.0)
    similarity = affinities([*every.values(), last], "whole")
    of = np.array([labels[name] for name in every])
    squares = {}
    for cluster in set(labels.values()):
        own = np.flatnonzero(of == cluster)
        inner = similarity[np.ix_(own, own)].mean()
        squares[cluster] = 1 - 2 * similarity[-1, own].mean() + inner
    centre = 1 - 2 * similarity[-1, :-1].mean() + similarity[:-1, :-1].mean()
    first, second = sorted(squares.values())[:2]
    placed = ok(ask(wards, f"clusterings/{made}/assign", last))
    nearest = min(squares, key=lambda cluster: squares[cluster])
    assert (nearest if first < centre else -1) == placed["cluster"]
    if placed["cluster"] >= 0:
        assert pytest.approx(1 - first / second, abs=1e-4) == placed["margin"]
    own = np.flatnonzero(of == nearest)
    pairs = similarity[np.ix_(own, own)][~np.eye(own.size, dtype=bool)].mean()
    assert pytest.approx(pairs, abs=1e-4) == placed["within"]


def test_who_is_nearest_to_no_cluster_joins_none(wards: Space, made: str) -> None:
    """The clustering stays as it is, and the answer says why."""
    noise = fit_subspace(np.random.default_rng(0).normal(size=(200, 64)))
    put(wards, "noise", noise).raise_for_status()
    before = show(wards, made)
    placed = ok(join(wards, made, "noise"))
    assert -1 == placed["cluster"]
    assert "no cluster is nearer than the mean" in placed["reason"]
    assert before == show(wards, made)


def test_a_repeated_request_has_one_effect(wards: Space, made: str) -> None:
    """By its key; without one, a member cannot join again."""
    key = {"Idempotency-Key": uuid.uuid4().hex}
    first, second = join(wards, made, "new-0", **key), join(wards, made, "new-0", **key)
    assert ok(first) == ok(second)
    assert 25 == show(wards, made)["models"]
    for member in ("new-0", "ward-00"):
        assert_problem(join(wards, made, member), 422, "invalid_parameter", field="model")


def test_newcomers_that_join_at_once_all_count(wards: Space, made: str) -> None:
    """One after the other: none is lost, and of equal requests one has an effect."""
    names = [name for name in NEWCOMERS for _ in range(2)]
    with ThreadPoolExecutor(len(names)) as pool:
        answers = list(pool.map(lambda name: join(wards, made, name).status_code, names))
    for at in range(0, len(names), 2):
        assert [200, 422] == sorted(answers[at : at + 2])
    after = show(wards, made)
    assert {*STORED, *NEWCOMERS} == {*cluster_of(after)}
    assert 24 + 8 == after["models"] == sum(each["size"] for each in after["clusters"])


def test_a_name_that_was_deleted_is_still_a_member(wards: Space, made: str) -> None:
    """Others join without it; what is stored by that name later waits for the next clustering."""
    put(wards, "passing", NEWCOMERS["new-0"]).raise_for_status()
    ok(join(wards, made, "passing"))
    wards.http.delete(wards.path("models/passing")).raise_for_status()
    assert_problem(join(wards, made, "passing"), 404, "model_not_found")
    ok(join(wards, made, "new-1"))
    assert {"passing", "new-1"} < {*cluster_of(show(wards, made))}
    put(wards, "passing", NEWCOMERS["new-2"]).raise_for_status()
    assert_problem(join(wards, made, "passing"), 422, "invalid_parameter", field="model")
    wards.http.delete(wards.path("models/passing")).raise_for_status()


def test_what_cannot_join(wards: Space, made: str, http: httpx.Client) -> None:
    """Unknown names, and supports, whose clusters have no mean."""
    assert_problem(join(wards, made, "nobody"), 404, "model_not_found")
    assert_problem(join(wards, "nothing", "new-1"), 404, "clustering_not_found")
    assert_problem(join(wards, made, "a\u0000b"), 422, "invalid_name")
    url = f"{wards.path('clusterings')}/{made}/join"
    bodies: list[Any] = [{}, {"model": 3}, {"model": "new-1", "more": 1}, []]
    for body in bodies:
        assert 422 == wards.http.post(url, json=body).status_code
    assert_problem(join(Space(http, 100), "latest", "m"), 409, "wrong_kind")


@pytest.mark.parametrize(
    ("scopes", "status", "said"),
    [
        (["write"], 403, "lacks the scope read"),
        (["read"], 403, "lacks the scope write"),
        (["read", "write"], 404, "there is no space 'wards'"),
    ],
)
def test_who_joins_may_read_what_the_tenant_has(
    backend: Backend, tmp_path: Path, scopes: list[str], status: int, said: str
) -> None:
    """The answer names models, so a key that writes alone gets none; nor does another tenant."""
    with open_keyed_app(tmp_path, backend) as app:
        body = {"name": "wards", "kind": "subspaces", "num_parameters": 64}
        assert 201 == app.http.post("/v1/spaces", json=body).status_code
        with app.database.writing() as session:
            key = app.services[KeyService].create(session, "another", scopes=scopes)
        url, headers = (
            "/v1/spaces/wards/clusterings/latest/join",
            {"Authorization": f"Bearer {key}"},
        )
        refused = app.http.post(url, json={"model": "new-0"}, headers=headers)
    assert status == refused.status_code
    assert said in refused.json()["detail"]


def test_a_subspace_without_the_classes_that_were_compared_cannot_join(wards: Space) -> None:
    """A mean of classes has no place for one of all samples."""
    by_class = cluster(wards, compare="classes")
    put(wards, "whole", fit_subspace(np.eye(64) + 1.0)).raise_for_status()
    assert_problem(join(wards, by_class, "whole"), 422, "invalid_parameter", field="model")


def test_the_client_joins(wards: Space, made: str) -> None:
    """The same as over HTTP, with the names of errors."""
    with modelkin.Client(str(wards.http.base_url)) as client:
        found = client.clusterings.get(wards.name, made)
        placed = client.clusterings.join(wards.name, "new-2", made)
        after = client.clusterings.get(wards.name, made)
        sizes = [{each.cluster: each.size for each in one.clusters} for one in (found, after)]
        assert sizes[0][placed.cluster] + 1 == sizes[1][placed.cluster]
        with pytest.raises(ApiError, match="already"):
            client.clusterings.join(wards.name, "new-2", found)
