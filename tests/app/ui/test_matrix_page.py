"""The page of a matrix as it is without scripts: what is found, left out, estimated and refused."""

from __future__ import annotations

import re

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from modelkin import Support
from tests.support.http_space import Space, family

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
