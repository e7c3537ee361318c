"""Query parameters that a page does not take: it says so, and goes on without them."""

from __future__ import annotations

import re
from html import unescape
from typing import Final

import httpx
import pytest
from fastapi.routing import APIRoute

from app.ui.pages import PAGES
from app.ui.rendering import PageRoutes
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, family

pytestmark = on_one_database

PATHS: Final = sorted(
    {
        route.path
        for routes in PAGES
        if isinstance(routes, PageRoutes)
        for route in routes.router().routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    }
    - {"/sign-in"}  # without keys it leads elsewhere
)
MODELS = family(31, 10_000, 300, 3)


def said(http: httpx.Client, address: str) -> list[str]:
    """What a page says of parameters that it ignores."""
    found = re.findall(r'<p class="ignored"[^>]*>(.*?)</p>', http.get(address).text, re.S)
    return [unescape(each) for each in found]


@pytest.mark.parametrize("path", PATHS)
def test_every_page_names_what_it_ignores(http: httpx.Client, path: str) -> None:
    """Also where the page is of something that is not there."""
    [sentence] = said(http, re.sub("{.*?}", "none", path) + "?surplus=1")
    assert sentence.startswith("'surplus' is no parameter of this page, and is ignored.")


def test_a_page_goes_on_and_lists_what_it_takes(http: httpx.Client, space: Space) -> None:
    """Of a graph ``model`` is ignored, since its model is ``of``; a near name is offered."""
    space.put_all(MODELS)
    at = f"/spaces/{space.name}/graph"
    assert 200 == http.get(f"{at}?model=m000").status_code
    [sentence] = said(http, f"{at}?model=m000")
    assert sentence.endswith("This page takes k, of, without.")
    [near] = said(http, f"{at}?of=m000&witout=m001")
    assert "did you mean 'without'?" in near
    [twice] = said(http, f"{at}?of=m000&of=m001&k=2&k=3")
    assert "'k' is given several times" in twice


@pytest.mark.parametrize(
    "query",
    [
        "graph?of=m000&of=m001&without=m002&k=2",
        "map?x=1&y=1&zoom=2&model=m000&color=tag:a&hide=b",
        "matrix?q=m&cut=0.5&most=3",
        "clusterings",
        "lineages?show=all&cursor=",
    ],
)
def test_what_pages_themselves_put_into_addresses_is_known(
    http: httpx.Client, space: Space, query: str
) -> None:
    """Scripts and forms of a page keep their choices there."""
    space.put_all(MODELS)
    assert not said(http, f"/spaces/{space.name}/{query}")


def test_a_hostile_name_is_shown_as_text_and_cut(http: httpx.Client) -> None:
    """Markup is no markup, a long name is cut, and of many the first are named."""
    page = http.get("/", params={"<script>alert(1)</script>" + 300 * "é": "1"}).text
    assert "<script>alert" not in page
    [sentence] = said(http, "/?" + 300 * "x" + "=1")
    assert "xxx...' is no parameter" in sentence
    assert 20 == len(said(http, "/?" + "&".join(f"n{i}=1" for i in range(50))))
