"""What neighbours are beside unrelated models: at chance, beyond it, or the very same."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from tests.support.http_space import Space, random_support, related

M = 10_000
LAYOUT = [{"name": "norm", "shape": [400]}, {"name": "body", "shape": [M - 400]}]
BASE = random_support(np.random.default_rng(1), M, 400)


@pytest.fixture(params=[True, False], ids=["layout", "no layout"])
def kin(http: httpx.Client, request: pytest.FixtureRequest) -> Space:
    """A base with a copy, a fine-tune, a signature of it, and three strangers."""
    space = Space(http, M, **({"layout": LAYOUT} if request.param else {}))
    rng = np.random.default_rng(2)
    models = {"base": BASE, "copy": BASE, "tuned": related(rng, BASE, 0.8)}
    models |= {
        f"stranger{i}": random_support(np.random.default_rng(10 + i), M, 400) for i in range(3)
    }
    space.put_all(models)
    space.put_signature("told", BASE.signature())
    return space


def test_strangers_are_marked_and_copies_are_named(kin: Space) -> None:
    """Each neighbour says whether unrelated models may be as near, and its P where one is known."""
    found = {item["model"]: item for item in kin.neighbors("base")["items"]}
    assert {"copy"} == {name for name, item in found.items() if item["identical"]}
    strangers = {f"stranger{i}" for i in range(3)}
    assert strangers == {name for name, item in found.items() if item["unrelated"]}
    known = kin.http.get(f"/v1/spaces/{kin.name}").json()["layout"] is not None
    assert known == (found["tuned"]["log10_p"] is not None)
    assert found["told"]["log10_p"] is None
    if known:
        assert found["tuned"]["log10_p"] < -10


def test_what_is_not_stored_is_judged_alike(kin: Space) -> None:
    """A support that is sent with the question is the very same as that of two models."""
    items = kin.find(BASE.to_bytes())["items"]
    same = {item["model"] for item in items if item["identical"]}
    assert {"base", "copy"} == same
    assert all(item["unrelated"] == item["model"].startswith("stranger") for item in items)


def test_equal_similarity_is_no_identity(http: httpx.Client) -> None:
    """S = 1 of a signature is an estimate, and no copy."""
    space = Space(http, M)
    space.put("a", BASE)
    space.put_signature("b", BASE.signature())
    [item] = space.neighbors("a")["items"]
    assert (1.0, False) == (item["similarity"], item["identical"])


def test_the_page_of_a_model_marks_both(kin: Space) -> None:
    """Beside S of each neighbour, and in the tile of the nearest."""
    shown = kin.http.get(f"/spaces/{kin.name}/models/base").text
    table = shown.partition('<table id="neighbors"')[2].partition("</table>")[0]
    assert (1, 3) == (table.count(">identical</span>"), table.count(">at chance</span>"))
    assert ", identical</small>" in shown


def test_the_page_of_a_graph_marks_strangers(kin: Space) -> None:
    """In its table and in what its script asks for, where P is known."""
    known = kin.http.get(f"/v1/spaces/{kin.name}").json()["layout"] is not None
    shown = kin.http.get(f"/spaces/{kin.name}/graph?of=base").text
    table = shown.partition('<table id="edges"')[2].partition("</table>")[0]
    assert (3 if known else 0) == table.count(">unrelated</span>")
    found = kin.http.get(f"/spaces/{kin.name}/graph/around", params={"of": "base"}).json()
    edges = {edge["source"] + edge["target"]: edge["unrelated"] for edge in found["edges"]}
    assert {
        "basecopy": False if known else None,
        "basetuned": False if known else None,
        "basetold": None,
        **{f"basestranger{i}": True if known else None for i in range(3)},
    } == edges
