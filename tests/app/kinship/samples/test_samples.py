"""The samples: made and deleted by one request each, with a kinship that is known."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import modelkin
from tests.support.http_space import ok

SPACE = "samples"


@pytest.fixture
def samples(http: httpx.Client) -> Iterator[None]:
    """The samples of the service, for one test."""
    answer = http.post("/samples")
    assert 201 == answer.status_code, answer.text
    yield
    http.delete("/samples")


@pytest.mark.usefixtures("samples")
def test_samples_have_what_one_wants_to_find(http: httpx.Client, client: modelkin.Client) -> None:
    """A declaration that is contradicted, one that holds, an assembly, an average and a copy."""
    found = ok(http.get(f"/v1/spaces/{SPACE}/lineages"))["items"]
    verdicts = {each["model"]: each["verdict"] for each in found}
    assert "mismatch" == verdicts["samples/claims-stranger"]
    assert "consistent" == verdicts["samples/chat"]
    anatomies = {name: client.anatomy(f"samples/{name}").verdict for name in ("mixed", "average")}
    assert {"mixed": "assembled", "average": "average"} == anatomies
    assert "copy" == client.anatomy("samples-mirror/base").verdict
    [group] = ok(http.get("/v1/duplicates", params={"space": SPACE}))["items"]
    assert {"samples/base", "samples-mirror/base"} == {each["model"] for each in group["items"]}


@pytest.mark.usefixtures("samples")
def test_samples_are_made_once(http: httpx.Client, client: modelkin.Client) -> None:
    """A second request is refused, and changes nothing."""
    before = client.spaces.get(SPACE).version
    answer = http.post("/samples")
    assert (409, "space_exists") == (answer.status_code, answer.json()["code"])
    assert before == client.spaces.get(SPACE).version


def test_samples_go_without_a_trace(http: httpx.Client, client: modelkin.Client) -> None:
    """Their space and their fingerprints; without them there is nothing to delete."""
    assert 201 == http.post("/samples").status_code
    assert 204 == http.delete("/samples").status_code
    assert SPACE not in {each.name for each in client.spaces.list()}
    assert not list(client.fingerprints.list(prefix="samples"))
    assert 404 == http.delete("/samples").status_code


def test_models_of_others_are_not_deleted_as_samples(http: httpx.Client) -> None:
    """A space of this name that holds anything else stays."""
    ok(http.post("/v1/spaces", json={"name": SPACE, "num_parameters": 1000}))
    body = {"indices": [1, 2, 3]}
    ok(http.put(f"/v1/spaces/{SPACE}/supports/own/model", json=body))
    assert (409, 404) == (http.post("/samples").status_code, http.delete("/samples").status_code)
    assert 204 == http.delete(f"/v1/spaces/{SPACE}").status_code
