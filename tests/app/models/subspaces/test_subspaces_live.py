"""Data subspaces among processes, after restarts, in clusterings, and under hostile bytes."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import Subspace, affinity, fit_subspace
from tests.app.models.subspaces.test_subspaces_api import (
    ARRIVING,
    GROUPS,
    KNOWN,
    NEW,
    SUBSPACE,
    ask,
    new_space,
    put,
)
from tests.app.models.subspaces.test_subspaces_api import STORED as PLANTED
from tests.soak.freshness import processes, services
from tests.support.backends import Backend
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, ok
from tests.support.repetitions import repetitions
from tests.support.servers.server_process import Server

MUTANTS = repetitions(400, few=80)
STEPS = repetitions(50, few=25)


def drawn(rng: np.random.Generator) -> Subspace:
    return Subspace.of_basis(rng.normal(size=(6, 2)))


@pytest.mark.slow
def test_no_read_is_stale(backend: Backend, tmp_path: Path) -> None:
    """What one process has acknowledged, both compare: puts, replacements and deletions.

    In one kind of service on each database; ``make soak`` has both.
    """
    first = 0 if backend.name == "sqlite" else 1
    for kind in (processes, services, processes)[first : first + repetitions(2, few=1)]:
        (tmp_path / kind.__name__).mkdir()
        never_stale(kind, backend, tmp_path / kind.__name__)


def never_stale(kind: Callable[..., Any], backend: Backend, tmp_path: Path) -> None:
    """All that is read through either is what was written last."""
    rng, held = np.random.default_rng(5), dict[str, Subspace]()
    with kind(tmp_path, backend) as (first, second):
        spec = {"constant": 0.0, "weighting": "flat", "compare": "whole"}
        space = new_space(first, 6, **spec)
        other = Space.existing(second, space.name, 6)
        for step in range(STEPS):
            one, reader = (space, other) if step % 2 else (other, space)
            name = f"m{rng.integers(12):02d}"
            if name in held and rng.random() < 0.3:
                assert 204 == one.http.delete(one.path("models", name)).status_code
                del held[name]
            else:
                held[name] = Subspace.from_bytes(drawn(rng).to_bytes())
                put(one, name, held[name]).raise_for_status()
            query = drawn(rng)
            sent = Subspace.from_bytes(query.to_bytes())
            expected = {n: affinity(s, sent) for n, s in held.items()}
            for either in (reader, one):
                found = ok(ask(either, "neighbors", query, k=20))["items"]
                assert expected.keys() == {item["model"] for item in found}
                for item in found:
                    assert abs(expected[item["model"]] - item["similarity"]) < 1e-5


@on_one_database
@pytest.mark.slow
def test_a_restart_keeps_all(backend: Backend, tmp_path: Path) -> None:
    """Also where the index of columns has no room: then each query reads the database."""
    server = Server(tmp_path, backend=backend).start()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        space = new_space(http)
        for name, subspace in PLANTED.items():
            put(space, name, subspace).raise_for_status()
        before = ok(ask(space, "neighbors", ARRIVING[0], k=24))["items"]
    assert 0 == server.stop()
    server = Server(tmp_path, "--index-memory-bytes=1048576", backend=backend).start()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        again = Space.existing(http, space.name, 64)
        assert before == ok(ask(again, "neighbors", ARRIVING[0], k=24))["items"]
    assert 0 == server.stop()


def clustered(space: Space, **request: Any) -> dict[str, Any]:
    """The clustering of a request, once its job has succeeded."""
    job = space.http.post(space.path("clusterings"), json=request)
    assert 202 == job.status_code, job.text
    end = time.monotonic() + 60
    while True:
        state = ok(space.http.get(f"/v1/jobs/{job.json()['id']}"))
        if state["state"] == "succeeded":
            return ok(space.http.get(space.path("clusterings") + "/latest"))
        assert state["state"] in {"queued", "running"}, state
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def wards(working_http: httpx.Client) -> Space:
    """24 clients in four groups, clustered by all their samples."""
    space = new_space(working_http, compare="whole")
    for name, subspace in PLANTED.items():
        put(space, name, subspace).raise_for_status()
    clustered(space, algorithm="agglomerative", n_clusters=4)
    return space


@on_one_database
def test_newcomers_are_assigned_to_the_nearest_centroid(wards: Space) -> None:
    """In all their classes; the answer says how much nearer it is than the next."""
    labels = cluster_of(ok(wards.http.get(wards.path("clusterings") + "/latest")))
    for subspace, group in zip(ARRIVING, NEW.groups.tolist(), strict=True):
        for params in ({}, {"compare": "classes"}):
            placed = ok(ask(wards, "clusterings/latest/assign", subspace, **params))
            member = next(name for name, other in GROUPS.items() if other == group)
            assert labels[member] == placed["cluster"]
            assert params.get("compare", "whole") == placed["compare"]
            assert 0 < placed["margin"] <= 1
            assert placed["learngene"] is None
            assert 10 == len(placed["votes"])
            assert (None, None) == (placed["reason"], placed["note"])
            assert 0 < placed["mean_similarity"] <= placed["similarity"]
            assert 0 < placed["within"] < 1
            assert {labels[name] for name in placed["nearest_members"]} == {placed["cluster"]}


def cluster_of(clustering: dict[str, Any]) -> dict[str, int]:
    return {
        member: each["cluster"] for each in clustering["clusters"] for member in each["members"]
    }


@on_one_database
def test_what_is_like_no_client_is_in_no_cluster(wards: Space) -> None:
    """Noise is no nearer to any centroid than to the mean of all."""
    rng = np.random.default_rng(0)
    for _ in range(4):
        noise = fit_subspace(rng.normal(size=(200, 64)))
        placed = ok(ask(wards, "clusterings/latest/assign", noise))
        assert (-1, None) == (placed["cluster"], placed["exemplar"])
        assert placed["votes"][0]["similarity"] == placed["similarity"]
        assert "no cluster is nearer than the mean" in placed["reason"]


@on_one_database
def test_clusterings_compare_what_they_are_asked_to(wards: Space) -> None:
    """And say so; a clustering of the models of a tag, too."""
    made = clustered(wards, algorithm="agglomerative", n_clusters=4, compare="classes")
    assert "classes" == made["chosen"]["compare"]
    assert "exact" == made["similarity"]
    answer = wards.http.post(wards.path("clusterings"), json={"similarity": "signature"})
    assert 422 == answer.status_code
    clustered(wards, algorithm="agglomerative", n_clusters=4, compare="whole")


@on_one_database
@pytest.mark.slow
def test_mutants_never_break_the_service(http: httpx.Client) -> None:
    """Each is a 4xx, or a subspace that is stored as it is."""
    space, rng = new_space(http), np.random.default_rng(3)
    data = next(iter(PLANTED.values())).to_bytes()
    headers = {"Content-Type": SUBSPACE}
    for number in range(MUTANTS):
        mutant = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            mutant[int(rng.integers(len(mutant)))] = int(rng.integers(256))
        if number % 3 == 0:
            del mutant[int(rng.integers(len(mutant))) :]
        else:
            mutant[-4:] = zlib.crc32(mutant[:-4]).to_bytes(4, "little")
        url = space.path("subspaces", "m")
        answer = space.http.put(url, content=bytes(mutant), headers=headers)
        assert answer.status_code < 500, bytes(mutant[:80])
    assert 200 == space.http.get("/readyz").status_code


def test_the_planted_groups_are_those_of_the_test() -> None:
    """The clients and newcomers of this file are of the same four groups."""
    assert sorted(set(KNOWN.groups.tolist())) == sorted(set(NEW.groups.tolist())) == [0, 1, 2, 3]
