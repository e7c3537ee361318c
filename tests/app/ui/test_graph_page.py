"""The page of a graph as it comes, and what its script asks for."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.app.ui.conftest import Explorer
from tests.support.http_space import Space, family, ok

M = 10_000
MODELS = family(31, M, 300, 5)


def test_a_model_comes_with_its_nearest(http: httpx.Client, space: Space) -> None:
    """As node-link data: the similarities of the neighbours, each edge once, ends by name; and with
    the base that it declares, where that is not among them.
    """
    space.put_all(MODELS)
    ok(http.patch(space.path("models", "m003"), json={"base_model": "m001"}))
    found = http.get(f"/spaces/{space.name}/graph/around", params={"of": "m003", "k": 2}).json()
    items = space.neighbors("m003", k=2)["items"]
    edges = {(edge["source"], edge["target"]): edge["similarity"] for edge in found["edges"]}
    assert {tuple(sorted(("m003", i["model"]))): i["similarity"] for i in items} == edges
    near = dict.fromkeys(["m003", *(item["model"] for item in items), "m001"])
    assert [*near] == [node["id"] for node in found["nodes"]]
    assert "m001" == found["nodes"][0]["base_model"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?of=nobody", 404),
        ("?of=m000&of=nobody", 404),
        ("?of=%3Cb%3E", 404),
        ("?of=m000&k=0", 422),
        ("?of=m000&k=x", 422),
        ("?" + "&".join(f"of=x{i}" for i in range(31)), 422),
    ],
)
def test_a_wrong_address_is_a_page(
    http: httpx.Client, space: Space, query: str, status: int
) -> None:
    """Unknown models, other numbers of neighbours, and too many expanded models."""
    space.put_all(MODELS)
    answer = http.get(f"/spaces/{space.name}/graph{query}")
    assert status == answer.status_code
    assert answer.headers["content-type"].startswith("text/html")


def test_the_script_is_told_of_problems_as_json(http: httpx.Client, space: Space) -> None:
    """A model that is gone is a problem document with its name."""
    answer = http.get(f"/spaces/{space.name}/graph/around", params={"of": "gone"})
    assert (404, "application/problem+json") == (
        answer.status_code,
        answer.headers["content-type"],
    )
    assert "gone" in answer.json()["detail"]


def test_what_was_removed_is_not_there(http: httpx.Client, space: Space) -> None:
    """Nor are its edges; an expanded model is shown even if the address also removes it."""
    space.put_all(MODELS)
    shown = http.get(f"/spaces/{space.name}/graph?of=m000&without=m001&without=m000").text
    table = shown.partition('<table id="edges"')[2]
    assert "m002" in table
    assert 'data-expand="m001"' not in table
    assert "m000" in table


def beginning(http: httpx.Client, space: Space) -> str:
    """The sentence that says with which model a graph begins that names none."""
    found = re.search(r'<p class="lead">(.*?)</p>', http.get(f"/spaces/{space.name}/graph").text)
    assert found is not None
    return found[1]


def test_a_graph_of_no_model_begins_with_the_newest(http: httpx.Client, space: Space) -> None:
    """The page shows that and its nearest at once; an empty space has nothing to show."""
    assert "no model yet" in http.get(f"/spaces/{space.name}/graph").text
    space.put_all(MODELS)
    space.put("a/last", MODELS["m002"])
    said = beginning(http, space)
    assert said.startswith("a/last and its nearest")
    assert "changed last" in said
    shown = http.get(f"/spaces/{space.name}/graph").text
    assert "m002" in shown.partition('<table id="edges"')[2]


def test_a_graph_of_no_model_begins_with_the_largest_cluster(explorer: Explorer) -> None:
    """With the model that stands for it, if one was made and has several models."""
    clusters = explorer.http.get(explorer.models.path("clusterings", "latest")).json()["clusters"]
    said = beginning(explorer.http, explorer.models)
    if clusters[0]["size"] > 1:
        assert said.startswith(f"{clusters[0]['exemplar']} and its nearest")
        assert f"of {clusters[0]['size']} models" in said
    else:
        assert "changed last" in said
