"""Declared bases over HTTP: one, several of a merge, and what the model is said to be of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import modelkin
from tests.support.http_space import Space, ok, random_support

RNG = np.random.default_rng(5)
BOTH: dict[str, Any] = {"base_models": ["org/a", "org/b"], "base_relation": "merge"}


@pytest.fixture
def merge(space: Space) -> Space:
    """A space whose model ``m`` is a merge of two, beside a child of one of them."""
    space.put_all({name: random_support(RNG, 10_000, 50) for name in ("m", "child", "other")})
    patch(space, **BOTH)
    patch(space, "child", base_model="org/a")
    return space


def patch(space: Space, name: str = "m", **changes: Any) -> tuple[Any, ...]:
    """Change a model; return its declared bases and their relation as the answer has them."""
    answer = ok(space.http.patch(space.path("models", name), json=changes))
    return answer["base_model"], answer["base_models"], answer["base_relation"]


def test_one_field_is_the_other(merge: Space) -> None:
    """A single base shows in both fields; a merge has none in the older one."""
    assert (None, ["org/a", "org/b"], "merge") == patch(merge)
    assert ("org/a", ["org/a"], None) == patch(merge, base_model="org/a")
    assert ("org/b", ["org/b"], None) == patch(merge, base_models=["org/b", "org/b"])
    assert ("org/b", ["org/b"], "finetune") == patch(merge, base_relation="finetune")
    assert ("org/b", ["org/b"], "finetune") == patch(merge, base_model="org/b")
    assert ("org/b", ["org/b"], None) == patch(merge, base_relation=None)


@pytest.mark.parametrize(
    "nothing", [{"base_model": None}, {"base_models": None}, {"base_models": []}]
)
def test_bases_are_cleared(merge: Space, nothing: dict[str, Any]) -> None:
    """Either field clears all, and the relation with them; other changes leave them."""
    assert (None, ["org/a", "org/b"], "merge") == patch(merge, tags=["x"])
    assert (None, [], None) == patch(merge, **nothing)


@pytest.mark.slow
def test_a_put_with_a_base_replaces_several(merge: Space) -> None:
    """What an upload says of its base is the whole declaration."""
    with modelkin.Client(str(merge.http.base_url)) as client:
        support = random_support(RNG, 10_000, 50)
        assert ("org/c", ("org/c",), None) == _declared(
            client.put_support(merge.name, "m", support, base_model="org/c")
        )
        said = client.models.update(
            merge.name, "m", base_models=["org/b", "org/a"], base_relation="merge"
        )
        assert (None, ("org/b", "org/a"), "merge") == _declared(said)
        assert said.base_models == client.models.get(merge.name, "m").base_models


def _declared(info: modelkin.ModelInfo) -> tuple[Any, ...]:
    return info.base_model, info.base_models, info.base_relation


def test_each_base_finds_a_merge(merge: Space) -> None:
    """Filters by base and by text find a merge by any of its bases, and by whole names alone."""
    patch(merge, "other", base_models=["org/a-b", "größe/ü"])

    def found(**query: str) -> list[str]:
        page = ok(merge.http.get(merge.path("models"), params=query))
        return [item["model"] for item in page["items"]]

    assert ["child", "m"] == found(base_model="org/a")
    assert ["m"] == found(base_model="org/b")
    assert ["other"] == found(base_model="größe/ü")
    assert [] == found(base_model="org")
    assert ["other"] == found(text="a-b")


def test_what_is_no_declaration(merge: Space) -> None:
    """It is refused, by the name of the field, and changes nothing."""
    refused: list[tuple[dict[str, Any], str]] = [
        ({"base_model": "a", "base_models": ["a"]}, "give one of them"),
        ({"base_models": ["a", "../b"]}, "base_models[1]"),
        ({"base_models": [f"org/{n}" for n in range(33)]}, "at most 32 bases"),
        ({"base_relation": "cousin"}, "base_relation"),
        ({"base_models": "org/a"}, "base_models"),
    ]
    for changes, said in refused:
        answer = merge.http.patch(merge.path("models", "m"), json=changes)
        assert (422, True) == (answer.status_code, said in answer.text), answer.text
    assert (None, ["org/a", "org/b"], "merge") == patch(merge)


@pytest.mark.slow
def test_the_graph_has_each_base(merge: Space) -> None:
    """Nodes name all bases, in JSON and in GraphML."""
    path = merge.path("graph")
    nodes = {node["id"]: node for node in ok(merge.http.get(path))["nodes"]}
    assert (None, ["org/a", "org/b"]) == (nodes["m"]["base_model"], nodes["m"]["base_models"])
    assert (["org/a"], []) == (nodes["child"]["base_models"], nodes["other"]["base_models"])
    written = merge.http.get(path, headers={"Accept": "application/graphml+xml"}).text
    assert '<data key="base_models">org/a,org/b</data>' in written
