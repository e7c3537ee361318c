"""Unknown query parameters: every operation names them, but for those that hubs and probes ask."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from tests.support.declared_problems import OPERATIONS, Operation
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, assert_problem, ok
from tests.support.provocations import VALID

pytestmark = on_one_database

LENIENT = {"receive_delivery", "livez", "readyz"}
"""Other makers' programs append parameters to these."""
STRICT = sorted(OPERATIONS.keys() - LENIENT)


def ask(http: httpx.Client, operation: Operation, *extra: tuple[str, str]) -> httpx.Response:
    """The answer to a valid request of what is not there, with more parameters."""
    request: dict[str, Any] = {**VALID.get(operation.name, {}), "params": [*extra]}
    request.pop("at", None)
    return http.request(operation.method, re.sub("{.*?}", "none", operation.path), **request)


@pytest.mark.parametrize("name", STRICT)
def test_an_unknown_parameter_is_named(http: httpx.Client, name: str) -> None:
    """It comes before anything else is wrong, so a 404 of the path never hides it."""
    answer = ask(http, OPERATIONS[name], ("surplus", "1"))
    assert "surplus: unknown parameter" in assert_problem(
        answer, 422, "invalid_parameter", "surplus"
    )


@pytest.mark.parametrize("name", STRICT)
def test_a_documented_parameter_is_known(http: httpx.Client, name: str) -> None:
    """What the OpenAPI document lists is never refused as unknown, and the refusal lists it."""
    documented = [
        parameter["name"]
        for parameter in OPERATIONS[name].described.get("parameters", ())
        if parameter["in"] == "query"
    ]
    detail = ask(http, OPERATIONS[name], *((each, "1") for each in documented), ("?", "")).json()
    assert ["?"] == [error["field"] for error in detail["errors"]]
    takes = f"known: {', '.join(sorted(documented))}" if documented else "takes none"
    assert takes in detail["detail"]


@pytest.mark.parametrize("name", sorted(LENIENT))
def test_hubs_and_probes_may_append_parameters(http: httpx.Client, name: str) -> None:
    """An event's own problem, or health, is answered with any parameters as without them."""
    plain, more = (ask(http, OPERATIONS[name], *extra) for extra in ((), (("source", "hub"),)))
    assert plain.status_code == more.status_code
    assert "unknown parameter" not in more.text


@pytest.mark.parametrize(
    ("tail", "field", "meant"),
    [
        ("models?tags=red", "tags", "'tag'"),
        ("neighbors?model=a&K=3", "K", "'k'"),
        ("neighbors?model=a&min_sim=0.3", "min_sim", "'min_similarity'"),
        ("donors?target=a&labels=x", "labels", "'label'"),
        ("overlap?a=x&b=y&tag=t", "tag", "known: a, b, compare)"),
    ],
)
def test_the_nearest_known_name_is_offered(space: Space, tail: str, field: str, meant: str) -> None:
    """A misspelt parameter is answered with the one that it stands for, if there is such."""
    answer = space.http.get(f"/v1/spaces/{space.name}/{tail}")
    assert meant in assert_problem(answer, 422, "invalid_parameter", field)


def test_a_second_value_is_refused_by_name(space: Space) -> None:
    """The last one is not taken silently; a parameter that is a list takes several."""
    at = f"/v1/spaces/{space.name}/neighbors?tag=a&tag=b&k=3&model=a"
    said = assert_problem(space.http.get(f"{at}&model=b"), 422, "invalid_parameter", "model")
    assert "several are given" in said
    assert_problem(space.http.get(at), 404, "model_not_found")


def test_every_unknown_parameter_is_named(http: httpx.Client) -> None:
    """Several are named together, a repeated one once; long names and long lists are cut."""
    answer = http.get("/v1/spaces?limit=5&tags=a&tags=b&order=name")
    assert_problem(answer, 422, "invalid_parameter")
    assert ["tags", "order"] == [error["field"] for error in answer.json()["errors"]]
    many = "&".join(f"{'x' * 500}{number}=1" for number in range(100))
    answer = http.get(f"/v1/spaces?{many}")
    assert_problem(answer, 422, "invalid_parameter", "x" * 60 + "...")
    assert len(answer.content) < 10_000


@pytest.mark.parametrize("query", ["", "?", "?&", "?limit=1&"])
def test_an_empty_query_has_no_parameters(http: httpx.Client, query: str) -> None:
    """Separators alone name nothing."""
    ok(http.get(f"/v1/spaces{query}"))


def test_pages_ignore_parameters(http: httpx.Client) -> None:
    """A link to the explorer may carry what a mail program appended to it."""
    assert 200 == http.get("/?utm_source=mail").status_code
