"""The pages of the explorer, as a browser gets them."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import httpx
import numpy as np
import pytest

from app.ui.assets import PREFIX
from modelkin import Support
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, family, ok, random_support, related
from tests.support.orders.family import importances, ordered_supports

pytestmark = on_one_database

M = 10_000
MODELS = family(31, M, 300, 4)
HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;"


class Page(HTMLParser):
    """What a browser sees: the tags, the links and the text."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: dict[str, str] = {}
        self.text = ""
        self._href = ""
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        self.feed(answer.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not {name for name, _ in attrs if name.startswith("on")}
        if tag == "a":
            self._href = dict(attrs).get("href") or ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._href and data.strip():
            self.links.setdefault(data, self._href)
            self._href = ""


def page(http: httpx.Client, url: str, status: int = 200) -> Page:
    """A page, which must be there."""
    answer = http.get(url)
    assert status == answer.status_code, answer.text
    return Page(answer)


def test_the_list_of_spaces_leads_to_every_space(http: httpx.Client, space: Space) -> None:
    """From the first page to it, and on page by page, a link leads to the space."""
    url = page(http, "/").links["Spaces"]
    while True:
        shown = page(http, url)
        if space.name in shown.links:
            break
        url = shown.links["More spaces"]
    assert f"/spaces/{space.name}" == shown.links[space.name]
    assert "No model has sent a support" in page(http, shown.links[space.name]).text


def test_a_search_on_the_first_page_finds_models_of_every_space(http: httpx.Client) -> None:
    """By any part of their names, with the space of each."""
    first, second = Space(http), Space(http)
    for each in first, second:
        each.put("org/found-7a51", MODELS["m000"])
    found = http.get("/", params={"q": "Found-7A51"}).text
    for each in first, second:
        assert f'href="/spaces/{each.name}/models/org/found-7a51"' in found
    assert "No space has" in found
    assert "No model has" in http.get("/", params={"q": "found-none"}).text


NAMES = ["plain", "org/deep/er", "with space", "plus+at@colon:x", "ünï/中文", "a.b", "..a/b.."]


@pytest.mark.parametrize("name", NAMES)
def test_a_models_name_links_to_its_page(http: httpx.Client, space: Space, name: str) -> None:
    """Whatever a name holds, the link of the space's page and that of a neighbour lead there."""
    space.put(name, MODELS["m000"])
    space.put("other", MODELS["m000"])
    listed = page(http, f"/spaces/{space.name}").links[name]
    near = page(http, f"/spaces/{space.name}/models/other").links[name]
    assert listed == near
    shown = page(http, listed)
    assert name in shown.text
    assert MODELS["m000"].digest in shown.text


def test_a_models_page_shows_its_kin(http: httpx.Client, space: Space) -> None:
    """Neighbours come best first with S to three digits, and donors' weights beside them."""
    space.put_all(MODELS)
    shown = page(http, f"/spaces/{space.name}/models/m000")
    items = space.neighbors("m000")["items"]
    places = [shown.text.index(item["model"], 200) for item in items]
    assert sorted(places) == places
    for item in items:
        assert f"{item['similarity']:.3f}" in shown.text


def test_an_estimate_is_shown_with_its_error(http: httpx.Client, space: Space) -> None:
    """A neighbour known by its signature alone carries ± its standard error."""
    space.put("a", MODELS["m000"])
    space.put_signature("s", MODELS["m001"].signature())
    error = space.neighbors("a")["items"][0]["standard_error"]
    shown = page(http, f"/spaces/{space.name}/models/a").text
    assert f"± {error:.3f}" in shown
    assert "estimated" in shown
    assert "a signature alone" in page(http, f"/spaces/{space.name}/models/s").text


def test_a_models_page_names_its_derivatives(http: httpx.Client, space: Space) -> None:
    """All that declare it as their base, however far; the nearest have their S beside them."""
    space.put_all(MODELS)
    for name in ("m001", "m003"):
        ok(http.patch(space.path("models", name), json={"base_model": "m000"}))
    shown = page(http, f"/spaces/{space.name}/models/m000").text.partition("Derivatives")[2]
    similarity = {item["model"]: item["similarity"] for item in space.neighbors("m000")["items"]}
    for name in ("m001", "m003"):
        assert re.search(rf"{name} S = {similarity[name]:.3f}", shown)
    assert "contradicted" not in shown
    assert "Derivatives" not in page(http, f"/spaces/{space.name}/models/m001").text


def test_a_contradicted_derivative_is_marked(http: httpx.Client, space: Space) -> None:
    """A model that declares a base which its lineage contradicts is marked in the base's list."""
    rng = np.random.default_rng(1)
    base = random_support(rng, M, 500)
    space.put_all({f"other-{n}": random_support(rng, M, 500) for n in range(8)})
    space.put_all({"base": base, "true": related(rng, base, 0.8), "false": related(rng, base, 0.8)})
    for name, declared in (("true", "base"), ("false", "other-3")):
        ok(http.patch(space.path("models", name), json={"base_model": declared}))
    shown = page(http, f"/spaces/{space.name}/models/other-3").text.partition("Derivatives")[2]
    assert re.search(r"false S = 0\.\d{3} contradicted", shown)
    right = page(http, f"/spaces/{space.name}/models/base").text.partition("Derivatives")[2]
    assert re.search(r"true S = 0\.8", right)
    assert "contradicted" not in right


@pytest.mark.parametrize(
    ("source", "address"),
    [
        ("https://hub.example/a?b=c", "https://hub.example/a?b=c"),
        ("hf://org/name", "https://huggingface.co/org/name"),
        ("javascript:alert(1)//https://x", None),
        ("data:text/html,x", None),
        ('https://x"onmouseover=alert(1)', None),
        ("https://", None),
        ("org/name", None),
    ],
)
def test_a_source_is_a_link_where_it_is_a_web_address(
    http: httpx.Client, space: Space, source: str, address: str | None
) -> None:
    """Nothing else that a client may state leads anywhere."""
    space.put("a", MODELS["m000"])
    ok(http.patch(space.path("models", "a"), json={"source": source}))
    shown = page(http, f"/spaces/{space.name}/models/a")
    assert source in shown.text
    assert address == shown.links.get(source)


def test_an_ordered_space_says_so(http: httpx.Client) -> None:
    """Among its facts, and beside S of a pair; a plain one says nothing of it."""
    ordered, plain = Space(http, M, ordered=True), Space(http, M)
    supports = ordered_supports(importances(1, M, 2), 50)
    ordered.put_all(supports)
    plain.put_all({name: each.unordered() for name, each in supports.items()})
    for space, there in ((ordered, True), (plain, False)):
        facts = page(http, f"/spaces/{space.name}/about").text
        assert there == ("ordered" in facts)
        pair = page(http, f"/spaces/{space.name}/pairs?a=m000&b=m001").text
        assert there == ("ordered similarity" in pair)
        for path in ("", "/matrix", "/graph", "/models/m000"):
            page(http, f"/spaces/{space.name}{path}")


def test_a_public_space_says_so(http: httpx.Client) -> None:
    """With what its owner chose; a description is text."""
    space = Space(http, M)
    about = f"/spaces/{space.name}/about"
    assert "cannot ask this space anything" in page(http, about).text
    chosen = {"step": 0.1, "daily_queries": 7, "description": HOSTILE}
    ok(http.put(f"/v1/spaces/{space.name}/public", json=chosen))
    shown = page(http, about)
    assert f"default/{space.name}" in shown.text
    assert HOSTILE in shown.text
    assert shown.tags.isdisjoint({"iframe", "b"})
    http.delete(f"/v1/spaces/{space.name}/public").raise_for_status()


def test_nothing_that_was_sent_becomes_markup(http: httpx.Client) -> None:
    """Attributes, sources and tensor names are text, whatever they look like."""
    space = Space(http, M, layout=[{"name": HOSTILE, "shape": [M]}])
    space.put("a", MODELS["m000"], tags=["t-1"])
    body = {"attributes": {HOSTILE: HOSTILE, "deep": {"x": [HOSTILE]}}, "source": HOSTILE}
    ok(http.patch(space.path("models", "a"), json=body))
    for url in (f"/spaces/{space.name}/about", f"/spaces/{space.name}/models/a"):
        answer = http.get(url)
        shown = Page(answer)
        assert shown.tags.isdisjoint({"iframe", "b"})
        assert all(PREFIX in tag for tag in re.findall(r"<(?:script|img)[^>]*>", answer.text))
        assert HOSTILE in unescape(answer.text)
        assert HOSTILE in shown.text


@pytest.mark.parametrize(
    "path", ["nowhere", "{space}/models/nobody", "{space}/models/%00", "{space}/models/<b>", "A<b>"]
)
def test_a_page_that_is_not_there_says_so(http: httpx.Client, space: Space, path: str) -> None:
    """Unknown and impossible names are a 404 page that leads back, with the name as text."""
    shown = page(http, "/spaces/" + path.format(space=space.name), status=404)
    assert "Not found" in shown.text
    assert "/spaces" == shown.links["All spaces"]
    assert "b" not in shown.tags


def test_pages_lead_through_all_models(http: httpx.Client, space: Space) -> None:
    """60 models are two pages; the link between them works, and no model is missing."""
    support = Support.from_indices([1, 2, 3], M)
    names = [f"m/{i:02d}" for i in range(60)]
    space.put_all(dict.fromkeys(names, support))
    first = page(http, f"/spaces/{space.name}")
    second = page(http, first.links["More models"])
    assert names == [*filter(in_models, first.links), *filter(in_models, second.links)]
    assert "More models" not in second.links


@pytest.mark.slow
def test_columns_of_a_long_list_lead_to_its_orders(http: httpx.Client, space: Space) -> None:
    """The whole list is ordered, by any of four columns; the one in force says so, and turns."""
    for place in range(51):
        space.put(f"m/{place:02d}", Support.from_indices(range(place % 50 + 1), M))
    space.put("m/07", Support.from_indices([1, 2, 3], M))
    here = f"/spaces/{space.name}"
    first = page(http, here)
    orders = ("name", "smallest", "largest", "most_revised", "newest", "oldest")
    column = {"model": "m/00", "indices": "m/49", "revision": "m/07", "changed": "m/07"}
    for name, top in column.items():
        shown = page(http, first.links[name])
        assert top == next(filter(in_models, shown.links)), name
        expected = "ascending" if name == "model" else "descending"
        assert f'aria-sort="{expected}"' in http.get(first.links[name]).text
    turned = page(http, page(http, first.links["indices"]).links["indices"])
    assert "m/00" == next(filter(in_models, turned.links))
    assert 'aria-sort="ascending"' in http.get(f"{here}?order=smallest").text
    for order in orders:
        listed = [*filter(in_models, page(http, f"{here}?order={order}").links)]
        second = page(http, page(http, f"{here}?order={order}").links["More models"])
        assert 51 == len({*listed, *filter(in_models, second.links)}), order


def in_models(name: str) -> bool:
    """Whether a link's text is the name of one of the test's models."""
    return re.fullmatch(r"m/\d\d", name) is not None


def test_pages_fetch_nothing_from_elsewhere(http: httpx.Client, space: Space) -> None:
    """What a page loads are the explorer's own files, which are there, and are kept for long."""
    space.put_all(MODELS)
    for url in ("/", f"/spaces/{space.name}", f"/spaces/{space.name}/models/m000"):
        text = http.get(url).text
        loaded = re.findall(r'<(?:script|link|img)\b[^>]*?(?:src|href)="([^"]*)"', text)
        assert len(loaded) > 3
        for path in loaded:
            assert path.startswith(PREFIX)
            answer = http.get(path)
            assert 200 == answer.status_code
            assert "immutable" in answer.headers["Cache-Control"]
            known = http.get(path, headers={"If-None-Match": answer.headers["ETag"]})
            assert (304, b"") == (known.status_code, known.content)


def test_a_file_of_another_version_is_the_present_one(http: httpx.Client) -> None:
    """A page of before an upgrade loads what there is, and keeps it for no other page."""
    answer = http.get("/assets/0000/page.js")
    assert (200, "no-cache") == (answer.status_code, answer.headers["Cache-Control"])
    for path in ("nothing.js", "../rendering.py", "%2e%2e/rendering.py"):
        assert 404 == http.get(f"{PREFIX}/{path}").status_code


@pytest.mark.parametrize(
    "path", ["/", "/spaces", "/new", "/jobs", "", "/models/m000", "/map", "/nowhere"]
)
def test_a_head_is_a_get_without_its_body(http: httpx.Client, space: Space, path: str) -> None:
    """The same status and type as the page has, and nothing after the head."""
    space.put("m000", MODELS["m000"])
    if path in {"", "/models/m000", "/map", "/nowhere"}:
        path = f"/spaces/{space.name}{path}"
    shown, head = http.get(path), http.head(path)
    assert shown.status_code == head.status_code
    assert shown.headers["content-type"] == head.headers["content-type"]
    assert b"" == head.content


def test_a_declared_chain_is_links(http: httpx.Client, space: Space) -> None:
    """The bases of a model's base lead to their pages; one that is not stored stays text."""
    for name, base in (("m000", "elsewhere"), ("m001", "m000"), ("m002", "m001")):
        space.put(name, MODELS[name])
        ok(http.patch(space.path("models", name), json={"base_model": base}))
    chain = http.get(f"/spaces/{space.name}/models/m002").text.partition("<dt>back to</dt>")[2]
    found = re.findall(r'href="([^"]*)"', chain.partition("</dd>")[0])
    assert [f"/spaces/{space.name}/models/m000"] == found
    assert "elsewhere" in chain.partition("</dd>")[0]


def test_a_subscription_leads_to_its_model_and_tag(http: httpx.Client, space: Space) -> None:
    """On its own page and in the list of all; without a space the model is searched for."""
    wanted = {"url": "http://93.184.216.34/", "events": ["support.stored"], "model": "a b"}
    made = ok(http.post("/v1/subscriptions", json={**wanted, "space": space.name, "tag": "x y"}))
    anywhere = ok(http.post("/v1/subscriptions", json=wanted))
    for path in ("/subscriptions", f"/subscriptions/{made['id']}"):
        links = page(http, path).links
        assert f"/spaces/{space.name}?q=tag%3A%22x+y%22" == links["x y"]
    assert f'href="/spaces/{space.name}/models/a%20b"' in http.get("/subscriptions").text
    assert 'href="/?q=a+b"' in http.get(f"/subscriptions/{anywhere['id']}").text


def test_a_merge_shows_all_its_bases(http: httpx.Client, space: Space) -> None:
    """Each base is a link to the models that declare it, with the relation behind them."""
    rng = np.random.default_rng(5)
    space.put_all({name: random_support(rng, M, 100) for name in ("m000", "m001")})
    said: dict[str, Any] = {"base_models": ["m001", "gone"], "base_relation": "merge"}
    ok(http.patch(space.path("models", "m000"), json=said))
    shown = page(http, f"/spaces/{space.name}/models/m000")
    assert "base%3A" in shown.links["gone"]
    assert "m001, gone merge" in " ".join(shown.text.split())
    listed = page(http, f"/spaces/{space.name}")
    assert "m001, gone merge" in " ".join(listed.text.split())


def test_pages_say_over_which_share_of_a_space_they_compare(http: httpx.Client) -> None:
    """Beside S of neighbours and donors, and for a pair, where one lacks a part of the space."""
    space = Space(http, M, layout=[{"name": n, "shape": [M // 2]} for n in ("a", "b")])
    whole = random_support(np.random.default_rng(6), M, 200)
    part = Support(whole.indices[whole.indices < 9_000], M, gaps=[(9_000, M)])
    space.put_all({"m000": whole, "m001": part, "m002": whole})
    shown = page(http, f"/spaces/{space.name}/models/m000").text
    assert 2 == shown.count("1.000 over 90.0%")
    pair = " ".join(page(http, f"/spaces/{space.name}/pairs?a=m000&b=m001").text.split())
    assert "compared over90.0%of the parameters" in pair
