"""The page of a matrix as it is without scripts: what is found, left out, estimated and refused."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from modelkin import Support
from tests.support.http_space import Space, family, ok, random_support

M = 10_000
MODELS = family(31, M, 300, 4)


def text(http: httpx.Client, space: Space, query: str = "", status: int = 200) -> str:
    """The page."""
    answer = http.get(f"/spaces/{space.name}/matrix{query}")
    assert status == answer.status_code
    assert answer.headers["content-type"].startswith("text/html")
    return answer.text


def test_a_search_chooses_the_models(http: httpx.Client, space: Space) -> None:
    """Only what the query finds is compared."""
    space.put_all(MODELS)
    space.put("tagged", MODELS["m000"], tags=["t"])
    space.put("tagged-too", MODELS["m001"], tags=["t"])
    shown = text(http, space, "?q=tag:t")
    assert "2 models" in shown
    assert "m003" not in shown
    assert "takes two models or more" in text(http, space, "?q=name:tagged-too")
    assert "No model is found" in text(http, space, "?q=nothing")


def test_the_nearest_of_a_model_is_a_link(http: httpx.Client, space: Space) -> None:
    """Each row of the groups leads to its model and to the one nearest to it."""
    space.put("a/b", MODELS["m000"])
    space.put("c d", MODELS["m000"])
    shown = text(http, space)
    for path in ("a/b", "c%20d"):
        assert 2 == shown.count(f'href="/spaces/{space.name}/models/{path}"')


def test_what_is_left_out_is_said(http: httpx.Client, space: Space) -> None:
    """Of four models three are shown, and the page says so."""
    space.put_all(MODELS)
    shown = text(http, space, "?most=3")
    assert "3 of 4 models, the first by name" in shown
    assert "are left out" in shown
    assert "m003" not in shown
    assert "left out" not in text(http, space)


def test_estimates_are_named(http: httpx.Client, space: Space) -> None:
    """A model that sent a signature alone has estimated similarities."""
    space.put_all(MODELS)
    space.put_signature("s", MODELS["m001"].signature())
    assert "1 of them sent a signature alone" in text(http, space)


@pytest.mark.parametrize(
    ("query", "status"),
    [("?models=nobody", 404), ("?models=%3Cb%3E%00", 404), ("?cut=2", 422), ("?cut=nan", 422)],
)
def test_a_wrong_address_is_a_page(
    http: httpx.Client, space: Space, query: str, status: int
) -> None:
    """Unknown models and cuts beyond 0 to 1 are said on a page."""
    space.put_all(MODELS)
    text(http, space, query, status)


def test_too_many_names_are_refused(http: httpx.Client, space: Space) -> None:
    """The page says how many it takes, and who takes more."""
    query = httpx.QueryParams({"models": "\n".join(f"x{i}" for i in range(301))})
    assert "300 models at most" in text(http, space, f"?{query}", 422)


def test_no_group_of_the_suggested_cut_is_by_chance(http: httpx.Client) -> None:
    """Four strangers that S puts into pairs, .34 where chance gives .30, are groups of one each."""
    rng, layout = np.random.default_rng(2), [{"name": "norm", "shape": [200]}]
    layout.append({"name": "body", "shape": [M - 200]})
    space = Space(http, M, layout=layout)

    def drawn(in_norm: npt.NDArray[np.int64]) -> Support:
        in_body = 200 + rng.choice(M - 200, 200, replace=False)
        return Support.from_indices(np.sort(np.concatenate([in_norm, in_body])), M)

    def pair(shared: int) -> list[Support]:
        norm = rng.permutation(200)
        other = np.concatenate([norm[:shared], norm[-(120 - shared) :]])
        return [drawn(norm[:120]), drawn(other)]

    models = dict(zip(("a0", "a1", "b0", "b1"), [*pair(84), *pair(84)], strict=True))
    space.put_all(models)
    rows = re.findall(r'class="n group">(\d+)<', text(http, space))
    assert ["1", "2", "3", "4"] == rows
    space.put("a2", models["a0"])
    rows = re.findall(r'class="n group">(\d+)<', text(http, space))
    assert 4 == len(set(rows))


def drawn_data(http: httpx.Client, space: Space, query: str = "") -> Any:
    """What the script of the page draws."""
    found = re.search(r'id="matrix-data"[^>]*>(.*?)</script>', text(http, space, query), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def group_sizes(http: httpx.Client, space: Space) -> list[int]:
    """How many models each group of the suggested cut has, the largest first."""
    rows = re.findall(r'class="n group">(\d+)<', text(http, space))
    return sorted(Counter(rows).values(), reverse=True)


def test_the_line_of_chance_is_that_of_the_api(http: httpx.Client) -> None:
    """It is the mean S that chance gives the pairs; joins of strangers are marked, others not."""
    space = Space(
        http, M, layout=[{"name": "a", "shape": [500]}, {"name": "b", "shape": [M - 500]}]
    )
    rng = np.random.default_rng(5)
    inside = np.sort(rng.choice(500, 300, replace=False))
    models = {f"s{i}": random_support(np.random.default_rng(i), M, 300) for i in range(3)}
    models["kin0"] = Support.from_indices(inside, M)
    models["kin1"] = Support.from_indices(inside[:-9], M)
    space.put_all(models)
    data = drawn_data(http, space)
    pairs = itertools.combinations(sorted(models), 2)
    expected = [
        ok(http.get(space.path("overlap"), params={"a": a, "b": b}))["expected"] for a, b in pairs
    ]
    assert abs(float(np.mean(expected)) - data["chance"]) < 1e-3
    assert [0, 1, 1, 1] == [by_chance for *_, by_chance in data["joins"]]
    assert [2, 1, 1, 1] == group_sizes(http, space)
    shown = text(http, space)
    assert f"an S of {data['chance']:.3f} on average" in shown
    assert 3 == shown.count(">at chance</span>")


@pytest.mark.parametrize("signatures", [False, True])
def test_strangers_of_unknown_tensors_are_no_group(http: httpx.Client, signatures: bool) -> None:
    """Without a layout, and of signatures, what random indices share holds nothing together."""
    space = Space(http, 1_000)
    for i in range(4):
        support = random_support(np.random.default_rng(i), 1_000, 300)
        if signatures:
            space.put_signature(f"s{i}", support.signature())
        else:
            space.put(f"s{i}", support)
    assert [1, 1, 1, 1] == group_sizes(http, space)
    assert 0.3 == drawn_data(http, space)["chance"]


def test_a_long_table_is_folded(http: httpx.Client, space: Space) -> None:
    """What stands below the groups of 41 models stays in reach; those of 40 are open."""
    space.put_all({f"m{n:02}": Support.from_indices(range(n, n + 90), M) for n in range(41)})
    assert '<details class="card"><summary><h2>Groups at the cut</h2>' in text(http, space)
    assert '<h2 id="groups-title">Groups at the cut</h2>' in text(http, space, "?most=40")
