"""A client that has a model already is answered that it is unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkin
from modelkin import wire
from tests.support.app.harness import AppHarness, open_app
from tests.support.http_space import random_support
from tests.support.models.learngene_files import gene, manifest_of

MODEL = "/v1/spaces/s/models/org/m"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service with a space of one model."""
    with open_app(Path(tmp_path_factory.mktemp("served"))) as harness:
        harness.create_space("s", 1000)
        rng = np.random.default_rng(1)
        harness.put_support("s", "org/m", random_support(rng, 1000, 50))
        body: dict[str, Any] = {"name": "data", "num_parameters": 16, "kind": "subspaces"}
        harness.http.post("/v1/spaces", json=body).raise_for_status()
        subspace = modelkin.fit_subspace(rng.normal(size=(90, 16)), np.arange(90) % 3)
        harness.http.put(
            "/v1/spaces/data/subspaces/client", json=wire.subspace_to_json(subspace)
        ).raise_for_status()
        path = "/v1/spaces/s/clusters/all/learngene"
        harness.http.put(path, json=manifest_of(gene(1))).raise_for_status()
        yield harness


def _asked(served: AppHarness, known: str) -> Any:
    return served.http.get(MODEL, headers={"If-None-Match": known})


def test_a_known_model_is_answered_without_a_body(served: AppHarness) -> None:
    """With its ETag, also among others, as a weak one, or for any."""
    etag = served.http.get(MODEL).headers["etag"]
    for known in (etag, f'"1-1-1", {etag}', f"W/{etag}", "*"):
        answer = _asked(served, known)
        assert (304, b"", etag) == (answer.status_code, answer.content, answer.headers["etag"])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/spaces/s/supports/org/m",
        "/v1/spaces/s/signatures/org/m",
        "/v1/spaces/s/sketches/org/m",
        "/v1/spaces/data/subspaces/client",
        "/v1/spaces/s/clusters/all/learngene",
    ],
)
def test_a_known_content_is_answered_without_a_body(served: AppHarness, path: str) -> None:
    """Of whatever kind; another version of it is answered whole."""
    whole = served.http.get(path)
    assert 200 == whole.status_code, whole.text
    etag = whole.headers["etag"]
    answer = served.http.get(path, headers={"If-None-Match": etag})
    assert (304, b"", etag) == (answer.status_code, answer.content, answer.headers["etag"])
    assert whole.headers.get("vary") == answer.headers.get("vary")
    again = served.http.get(path, headers={"If-None-Match": '"1-1-1"'})
    assert (200, whole.content) == (again.status_code, again.content)


def test_what_is_not_there_is_known_to_nobody(served: AppHarness) -> None:
    """A model that sent a signature alone has no support, whatever version a client has."""
    signature = random_support(np.random.default_rng(2), 1000, 50).signature()
    put = served.http.put("/v1/spaces/s/signatures/org/s", json=wire.signature_to_json(signature))
    assert 201 == put.status_code, put.text
    known = {"If-None-Match": put.headers["etag"]}
    for kind in ("supports", "sketches"):
        answer = served.http.get(f"/v1/spaces/s/{kind}/org/s", headers=known)
        assert answer.status_code in {404, 409}


def test_the_document_tells_of_versions(served: AppHarness) -> None:
    """Where an answer may be a 304 there are both headers, and where a change may be refused."""
    seen = set()
    for path in served.http.get("/openapi.json").json()["paths"].values():
        for method, operation in path.items():
            answers = operation["responses"]
            taken = {each["name"].lower() for each in operation.get("parameters", [])}
            versioned = {
                status for status, each in answers.items() if "ETag" in each.get("headers", {})
            }
            if method == "get":
                assert ("304" in answers) == ("if-none-match" in taken) == bool(versioned)
            elif taken & {"if-match", "if-none-match"} and method != "delete":
                assert versioned
            seen |= {operation["operationId"]} if versioned else set()
    assert seen >= {"get_model", "get_support", "put_support", "patch_support", "get_anatomy"}


def test_another_version_is_answered_whole(served: AppHarness) -> None:
    """What a client has of before a change is not the model."""
    etag = served.http.get(MODEL).headers["etag"]
    served.http.patch(MODEL, json={"tags": ["new"]}).raise_for_status()
    answer = _asked(served, etag)
    assert (200, ["new"]) == (answer.status_code, answer.json()["tags"])
    assert etag != answer.headers["etag"]


def test_a_model_that_is_not_there_is_missing(served: AppHarness) -> None:
    """Whatever the client has of it."""
    answer = served.http.get("/v1/spaces/s/models/none", headers={"If-None-Match": "*"})
    assert 404 == answer.status_code
