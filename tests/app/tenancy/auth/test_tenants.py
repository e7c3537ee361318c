"""Tenants: one never learns that there is another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.app.tenancy.auth.test_keys import new_key
from tests.support.backends import Backend
from tests.support.declared_problems import checked
from tests.support.fixtures import Start
from tests.support.http_space import family
from tests.support.servers.server_process import Server

Two = tuple[httpx.Client, httpx.Client]

M = 20_000
VOLATILE = re.compile(
    rb'"(?:created_at|updated_at)":"[^"]+"|"request_id":"[^"]+"'
    rb"|modelkin_request_seconds_sum\S* \S+"
)


def tenant(server: Server, name: str) -> httpx.Client:
    """HTTP with a key of this tenant."""
    key = new_key(server, f"--tenant={name}")
    return checked(
        httpx.Client(
            base_url=server.url, headers={"Authorization": f"Bearer {key}"}, trust_env=False
        )
    )


def crowd(http: httpx.Client, seed: int) -> None:
    """Fill spaces, some of the names that the script uses, with other models."""
    for space in ("shared-name", "other"):
        http.post("/v1/spaces", json={"name": space, "num_parameters": M})
        for name, support in family(seed, M, 800, 12).items():
            url = f"/v1/spaces/{space}/supports/org/{name}?tag=red"
            headers = {"Content-Type": "application/vnd.modelkin.support"}
            assert 201 == http.put(url, content=support.to_bytes(), headers=headers).status_code
    http.delete("/v1/spaces/other/models/org/m003")


def script(http: httpx.Client) -> list[bytes]:
    """What one tenant does, and every byte that it is answered, times and request ids left out."""
    answers: list[httpx.Response] = []
    space = "/v1/spaces/shared-name"
    answers.append(http.get("/v1/spaces"))
    answers.append(http.get(space))
    answers.append(
        http.post("/v1/spaces", json={"name": "shared-name", "num_parameters": M, "signature": {}})
    )
    headers = {"Content-Type": "application/vnd.modelkin.support"}
    for name, support in family(1, M, 1000, 8).items():
        url = f"{space}/supports/org/{name}?tag=red"
        answers.append(http.put(url, content=support.to_bytes(), headers=headers))
    for method in ("exact", "scan"):
        url = f"{space}/neighbors?model=org/m000&k=20&tag=red&method={method}"
        answers.append(http.get(url))
    names = [f"org/m{i:03d}" for i in range(8)]
    answers.append(http.post(f"{space}/similarity", json={"models": names}))
    paths = (
        "/donors?target=org/m001",
        "/donors?target=org/m001&method=idf",
        "/donors?target=org/m001&method=cover&weights=zscore",
        "/graph?k=2",
        "/lineage?model=org/m001",
        "/support-size",
        "/models?limit=3",
        "/models/org/m002",
        "/overlap?a=org/m001&b=org/m002",
        "/supports/org/m002",
        "/revisions/org/m002",
        "/signatures/org/m002",
        "/models/org/m011",
        "/supports/org/m011",
        "/neighbors?model=org/m011",
    )
    answers += [http.get(space + path) for path in paths]
    answers.append(http.delete(f"{space}/models/org/m004"))
    answers.append(http.get("/v1/spaces/other"))
    answers.append(http.get("/v1/spaces"))
    return [stable_part(answer) for answer in answers]


def stable_part(answer: httpx.Response) -> bytes:
    """Status, headers and body, without what the clock and chance decide."""
    headers = {k: v for k, v in answer.headers.items() if k not in {"date", "x-request-id"}}
    if "etag" in headers:
        headers["etag"] = headers["etag"].rpartition("-")[0]  # it ends in when the model was made
    return f"{answer.status_code} {sorted(headers.items())} ".encode() + VOLATILE.sub(
        b"", answer.content
    )


@pytest.mark.slow
def test_answers_are_the_same_with_and_without_others(start: Start, tmp_path: Path) -> None:
    """A tenant's whole script is answered byte for byte alike beside another tenant's data."""
    alone: list[bytes] = []
    beside: list[bytes] = []
    for others, into in ((False, alone), (True, beside)):
        folder = tmp_path / str(others)
        folder.mkdir()
        server = start("--auth=required", folder=folder)
        if others:
            with tenant(server, "bystander") as http:
                crowd(http, seed=9)
        with tenant(server, "actor") as http:
            into += script(http)
        assert 0 == server.stop()
    assert alone == beside


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/models"),
        ("GET", "/models/org/m000"),
        ("PATCH", "/models/org/m000"),
        ("DELETE", "/models/org/m000"),
        ("GET", "/supports/org/m000"),
        ("GET", "/supports/org/m000?revision=1"),
        ("PATCH", "/supports/org/m000"),
        ("GET", "/revisions/org/m000"),
        ("GET", "/signatures/org/m000"),
        ("GET", "/neighbors?model=org/m000"),
        ("GET", "/donors?target=org/m000"),
        ("GET", "/donors?target=org/m000&method=idf"),
        ("GET", "/graph"),
        ("GET", "/tensors"),
        ("GET", "/lineage?model=org/m000"),
        ("GET", "/support-size"),
        ("GET", "/overlap?a=org/m000&b=org/m001"),
        ("POST", "/similarity"),
        ("POST", "/clusterings"),
        ("GET", "/clusterings"),
        ("GET", "/clusterings/latest"),
        ("DELETE", "/clusterings/0198c7a2-5b7e-7cc3-98c4-dc0c0c07398f"),
        ("GET", "/clustering-policy"),
        ("DELETE", "/clustering-policy"),
    ],
)
def test_anothers_space_is_a_404(two: Two, method: str, path: str) -> None:
    """What belongs to another tenant is answered exactly as what does not exist."""
    _, outsider = two
    body = {"models": ["org/m000"]} if method == "POST" else {} if method == "PATCH" else None

    def asked(space: str) -> tuple[int, bytes]:
        url, headers = f"/v1/spaces/{space}{path}", {"If-Match": "*"}
        answer = outsider.request(method, url, json=body, headers=headers)
        return answer.status_code, VOLATILE.sub(b"", answer.content).replace(space.encode(), b"")

    assert 404 == asked("shared-name")[0]
    assert asked("never-was-there") == asked("shared-name")


def test_near_names_are_the_tenants_own(two: Two) -> None:
    """A 404 offers names of the tenant that asks: another's, however near, are never shown."""
    _, outsider = two
    space, model = "/v1/spaces/shared-nut", "/v1/spaces/shared-nut/models/org/m00"
    missing = outsider.get("/v1/spaces/shared-nam").json()["detail"]
    assert "there is no space 'shared-nam'" == missing
    outsider.post("/v1/spaces", json={"name": "shared-nut", "num_parameters": M}).raise_for_status()
    try:
        missing = outsider.get("/v1/spaces/shared-nam").json()["detail"]
        assert "there is no space 'shared-nam'; did you mean 'shared-nut'?" == missing
        assert (
            "there is no model 'org/m00' in space 'shared-nut'"
            == outsider.get(model).json()["detail"]
        )
    finally:
        outsider.delete(space).raise_for_status()


@pytest.fixture(scope="module")
def two(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """An owner with data, and another tenant."""
    folder = tmp_path_factory.mktemp("two")
    server = Server(folder, "--auth=required", backend=backend).start()
    with tenant(server, "owner") as owner, tenant(server, "stranger") as outsider:
        crowd(owner, seed=3)
        yield owner, outsider
        assert 200 == owner.get("/v1/spaces/shared-name/models/org/m000").status_code
    assert 0 == server.stop()
