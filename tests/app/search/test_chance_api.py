"""Chance over HTTP: every answer says what S chance gives, and what lies beyond it."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import Client, Support
from modelkin.errors import ApiError
from tests.support.http_space import SIGNATURE, Space, assert_problem, ok

SIZES = {"embedding": 900, "empty": 0, "norm": 40, "head": 60}
LAYOUT = [{"name": name, "shape": [size]} for name, size in SIZES.items()]
M = sum(SIZES.values())
ENDS = np.cumsum(list(SIZES.values()))
PAIRS = ("expected", "kappa")


def drawn(rng: np.random.Generator, *counts: int) -> Support:
    """A support with so many random indices in each tensor."""
    begins = ENDS - np.array(list(SIZES.values()))
    pieces = [
        begin + rng.choice(size, count, replace=False)
        for begin, size, count in zip(begins, SIZES.values(), counts, strict=True)
    ]
    return Support.from_indices(np.sort(np.concatenate(pieces)), M)


def planted() -> dict[str, Support]:
    """A base, its child that keeps 80% of each tensor, and five that share tensors alone."""
    rng = np.random.default_rng(3)
    base = drawn(rng, 60, 0, 36, 20)
    kept = np.sort(rng.choice(base.indices, 93, replace=False))
    others = np.setdiff1d(np.arange(M), base.indices)
    new = rng.choice(others, 23, replace=False)
    child = Support.from_indices(np.sort(np.concatenate([kept, new])), M)
    strangers = {f"stranger-{i}": drawn(rng, 50 + i, 0, 37, 21) for i in range(5)}
    return {"base": base, "child": child, **strangers}


MODELS = planted()


def chance(a: str, b: str) -> dict[str, float]:
    """S0 and kappa of two planted supports, from their sets."""
    one, other = (set(MODELS[name].indices.tolist()) for name in (a, b))
    shared, low = 0.0, 0
    for size, end in zip(SIZES.values(), ENDS.tolist(), strict=True):
        inside = set(range(low, end))
        shared += len(one & inside) * len(other & inside) / size if size else 0.0
        low = end
    s0 = 2 * shared / (len(one) + len(other))
    s = 2 * len(one & other) / (len(one) + len(other))
    return {"expected": s0, "kappa": (s - s0) / (1 - s0)}


def of(item: dict[str, Any]) -> dict[str, Any]:
    """What an item says of chance."""
    return {name: item[name] for name in PAIRS}


@pytest.fixture(scope="module")
def crowd(http: httpx.Client) -> Space:
    """The planted models, and one that sent only a signature."""
    space = Space(http, M, layout=LAYOUT)
    space.put_all(MODELS)
    space.put_signature("unseen", MODELS["base"].signature(256, 1, "affine32"))
    ok(http.patch(space.path("models", "child"), json={"base_model": "base"}))
    return space


def test_neighbors_say_what_chance_gives(crowd: Space) -> None:
    """Of a stored model and of a body; S of strangers is high, and their kappa is not."""
    stored = crowd.neighbors("base", k=20)["items"]
    given = crowd.find(MODELS["base"].to_bytes(), k=20)["items"]
    for item in stored:
        if item["model"] != "unseen":
            assert pytest.approx(chance("base", item["model"])) == of(item)
    by_name = {item["model"]: item for item in given}
    assert pytest.approx(1.0) == by_name["base"]["kappa"]
    assert [of(item) for item in stored] == [of(by_name[item["model"]]) for item in stored]
    strangers = [item for item in stored if item["model"].startswith("stranger")]
    assert min(item["similarity"] for item in strangers) > 0.35
    assert max(item["kappa"] for item in strangers) < 0.1 < 0.6 < by_name["child"]["kappa"]
    assert stored == sorted(stored, key=lambda item: -item["similarity"])


@pytest.mark.parametrize("method", ["exact", "scan", "lsh"])
def test_every_method_says_it(crowd: Space, method: str) -> None:
    """However a neighbour was found, its chance comes with it."""
    [child] = crowd.neighbors("base", k=1, method=method, tags=[])["items"][:1] or [None]
    found = {item["model"]: item for item in crowd.neighbors("base", k=20, method=method)["items"]}
    assert child is not None
    assert pytest.approx(chance("base", "child")) == of(found["child"])


def test_a_signature_has_no_kappa(crowd: Space) -> None:
    """Null where a side sent only a signature, stored or in the body."""
    assert {"expected": None, "kappa": None} == of(crowd.neighbors("base", k=1)["items"][0])
    sent = MODELS["base"].signature(256, 1, "affine32").to_bytes()
    answers = (crowd.neighbors("unseen"), crowd.find(sent, SIGNATURE))
    assert all(item["kappa"] is item["expected"] is None for a in answers for item in a["items"])
    matrix = similarity(crowd, ["base", "unseen"]).json()
    assert [[1.0, None], [None, None]] == matrix["kappa"]
    assert "kappa of 1 of the models is not known: each sent a signature alone" in matrix["note"]
    alone = similarity(crowd, ["base", "child"]).json()
    assert "signature" not in (alone["note"] or "")


def test_min_kappa_keeps_those_beyond_chance(crowd: Space) -> None:
    """Of the k nearest by S those of the least kappa or more; without a kappa none is."""
    params: dict[str, Any] = {"min_kappa": 0.3}
    assert ["child"] == [i["model"] for i in crowd.neighbors("base", **params)["items"]]
    found = crowd.find(MODELS["base"].to_bytes(), **params)["items"]
    assert {"base", "child"} == {item["model"] for item in found}
    assert [] == crowd.neighbors("unseen", **params)["items"]
    assert [] == crowd.neighbors("base", k=1, **params)["items"]


def test_an_overlap_says_it_by_tensor(crowd: Space) -> None:
    """The pair as a whole, and each tensor by itself."""
    answer = ok(crowd.http.get(crowd.path("overlap"), params={"a": "base", "b": "stranger-0"}))
    assert pytest.approx(chance("base", "stranger-0")) == of(answer)
    embedding, empty, norm, _ = answer["tensors"]
    assert pytest.approx(2 * 60 * 50 / 900 / 110) == embedding["expected"]
    assert {"expected": None, "kappa": None} == of(empty)
    s, s0 = norm["similarity"], norm["expected"]
    assert s > 0.9
    assert pytest.approx((s - s0) / (1 - s0)) == norm["kappa"]


@pytest.mark.parametrize("method", ["similarity", "cover", "idf"])
def test_donors_say_it(crowd: Space, method: str) -> None:
    """Whatever ranks them."""
    params = {"target": "base", "method": method}
    items = ok(crowd.http.get(crowd.path("donors"), params=params))["items"]
    known = [item for item in items if item["model"] != "unseen"]
    assert known
    assert all(pytest.approx(chance("base", i["model"])) == of(i) for i in known)


def test_a_lineage_says_it(crowd: Space) -> None:
    """The base, the kin and the links of the chain."""
    answer = ok(crowd.http.get(crowd.path("lineage"), params={"model": "child"}))
    expected = pytest.approx(chance("child", "base"))
    assert expected == of(answer["base"])
    assert expected == of(answer["chain"][0])
    assert all(
        pytest.approx(chance("child", kin["model"])) == of(kin)
        for kin in answer["kin"]
        if kin["model"] != "unseen"
    )


def test_edges_say_it(crowd: Space, client: Client) -> None:
    """As node-link JSON, as GraphML, and through the SDK."""
    edges = ok(crowd.http.get(crowd.path("graph"), params={"k": 7}))["edges"]
    for edge in edges:
        if "unseen" in {edge["source"], edge["target"]}:
            assert {"expected": None, "kappa": None} == of(edge)
        else:
            assert pytest.approx(chance(edge["source"], edge["target"])) == of(edge)
    accept = {"Accept": "application/graphml+xml"}
    text = crowd.http.get(crowd.path("graph"), params={"k": 7}, headers=accept).text
    assert 2 == text.count('attr.name="expected"') + text.count('attr.name="kappa"')
    known = sum(edge["kappa"] is not None for edge in edges)
    assert known == text.count('<data key="kappa">') == text.count('<data key="expected">')
    read = client.spaces.graph(crowd.name, k=7)
    assert [edge["kappa"] for edge in edges] == [edge.kappa for edge in read.edges]


def similarity(space: Space, models: list[str], accept: str = "application/json") -> httpx.Response:
    """The matrix of kappa."""
    answer = space.http.post(
        space.path("similarity"),
        params={"measure": "kappa"},
        json={"models": models},
        headers={"Accept": accept},
    )
    assert 200 == answer.status_code, answer.text
    return answer


def test_the_matrix_of_kappa_has_three_forms(crowd: Space, client: Client) -> None:
    """Unknown pairs are null in JSON, empty in CSV and NaN in .npy."""
    names = [*MODELS, "unseen"]
    answer = json.loads(similarity(crowd, names).content)
    assert ("kappa", None, ["unseen"]) == tuple(
        answer[field] for field in ("measure", "similarity", "estimated")
    )
    for row, a in enumerate(MODELS):
        for column, b in enumerate(MODELS):
            assert pytest.approx(chance(a, b)["kappa"]) == answer["kappa"][row][column]
    last = [None] * len(names)
    assert last == answer["kappa"][-1] == [row[-1] for row in answer["kappa"]]
    rows = list(csv.reader(io.StringIO(similarity(crowd, names, "text/csv").text)))
    assert [[float(cell) if cell else None for cell in row[1:]] for row in rows[1:]] == answer[
        "kappa"
    ]
    read = client.similarity(crowd.name, names, measure="kappa")
    assert "kappa" == read.measure
    assert [[None if v != v else v for v in row] for row in read.values.tolist()] == answer["kappa"]
    plain = ok(crowd.http.post(crowd.path("similarity"), json={"models": ["base"]}))
    assert {"measure": "similarity", "similarity": [[1.0]], "kappa": None}.items() <= plain.items()


def test_a_space_without_a_layout_knows_no_chance(space: Space, client: Client) -> None:
    """Null in answers; to ask for it is a 422 that names the field."""
    rng = np.random.default_rng(0)
    for name in "ab":
        space.put(name, Support.from_indices(np.sort(rng.choice(space.m, 99, False)), space.m))
    assert {"expected": None, "kappa": None} == of(space.neighbors("a")["items"][0])
    pair = ok(space.http.get(space.path("overlap"), params={"a": "a", "b": "b"}))
    assert {"expected": None, "kappa": None} == of(pair)
    asked = space.http.get(space.path("neighbors"), params={"model": "a", "min_kappa": 0})
    assert "no layout" in assert_problem(asked, 422, "invalid_parameter", "min_kappa")
    matrix = space.http.post(
        space.path("similarity"), json={"models": ["a"]}, params={"measure": "kappa"}
    )
    assert "no layout" in assert_problem(matrix, 422, "invalid_parameter", "measure")
    with pytest.raises(ApiError, match="min_kappa"):
        client.neighbors(space.name, "a", min_kappa=0.1)


@pytest.mark.parametrize("value", ["1.1", "-1.1", "nan", "x"])
def test_a_kappa_is_a_number_from_minus_1_to_1(crowd: Space, value: str) -> None:
    """Anything else is a 422."""
    params = {"model": "base", "min_kappa": value}
    asked = crowd.http.get(crowd.path("neighbors"), params=params)
    assert_problem(asked, 422, "invalid_parameter", "min_kappa")
