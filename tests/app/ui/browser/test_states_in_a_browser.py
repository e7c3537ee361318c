"""Every route of the explorer in a real browser: about nothing, with the longest texts, refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

import httpx
import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Browser

from app.ui.pages import PAGES
from app.ui.rendering import PageRoutes
from tests.support.explorer.accessibility import DESK, PHONE, show
from tests.support.explorer.long_texts import put_long
from tests.support.servers.browser import Visit, visiting
from tests.support.servers.server_process import Server

pytestmark = pytest.mark.browser

ROUTES: Final = sorted(
    route.path
    for routes in PAGES
    if isinstance(routes, PageRoutes)
    for route in routes.router().routes
    if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    if not route.path.endswith("/completions")  # for scripts
)
ASKED: Final = {
    "/spaces/{space}/pairs": "a={model}&b={other}",
    "/spaces/{space}/graph": "of={model}",
    "/spaces/{space}/clusterings/{clustering}": "cluster=0&than=latest",
    "/spaces/{space}/lineages": "show=all",
    "/findings": "show=undeclared",
    "/tensors": "a={model}&b={other}",
    "/family": "of={model}",
    "/relatives": "of={model}",
}
"""What a route's address asks, where it has to, or shows more by it."""
NOTHING: Final = dict.fromkeys(
    ("model", "other", "clustering", "merge", "job", "source", "subscription"), "nothing"
) | {"space": "empty"}
_SIDEWAYS: Final = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
_MARKUP: Final = "main iframe, main script, main img, main [onload]"


def address(route: str, values: dict[str, str]) -> str:
    """The path of a page, with its query."""
    quoted = {name: quote(value, safe="") for name, value in values.items()}
    in_path = quoted | {"model": quote(values["model"])}
    path = route.replace(":tail", "").format(**in_path)
    return f"{path}?{ASKED[route].format(**quoted)}" if route in ASKED else path


def fits(visit: Visit, url: str) -> str:
    """Open a page, which has one heading and fits a desk and a phone; return its text."""
    page = visit.open(url)
    assert 1 == page.locator("h1").count()
    assert page.locator("h1").inner_text().strip()
    assert not page.locator(_MARKUP).count()
    for scheme, size in (("light", DESK), ("dark", PHONE)):
        show(page, scheme, size)  # type: ignore[arg-type]
        assert 0 == page.evaluate(_SIDEWAYS), f"{size[0]} pixels"
    visit.assert_quiet()
    return page.locator("main").inner_text()


@pytest.fixture(scope="module")
def visit(browser: Browser) -> Iterator[Visit]:
    """One visitor of all pages."""
    with visiting(browser) as visit:
        yield visit


@pytest.fixture(autouse=True)
def _anew(visit: Visit) -> None:
    visit.requests.clear()
    visit.complaints.clear()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with one space, which has no model."""
    running = Server(tmp_path_factory.mktemp("empty")).start()
    space = {"name": "empty", "num_parameters": 1000}
    made = httpx.post(f"{running.url}/v1/spaces", json=space, trust_env=False)
    assert 201 == made.status_code
    yield running.url
    assert running.stop() == 0


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A service of the longest texts, and what its addresses name."""
    running = Server(tmp_path_factory.mktemp("long")).start()
    with httpx.Client(base_url=running.url, timeout=60, trust_env=False) as http:
        yield running.url, put_long(http)
    assert running.stop() == 0


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that asks for keys."""
    running = Server(tmp_path_factory.mktemp("locked"), "--auth=required").start()
    yield running.url
    assert running.stop() == 0


@pytest.mark.parametrize("route", ROUTES)
def test_a_page_about_nothing_has_words(empty: str, visit: Visit, route: str) -> None:
    """It says what there is not, and leads on: to a form, a command or another page."""
    words = fits(visit, empty + address(route, NOTHING))
    assert len(words.split()) > 5
    assert visit.page.locator("main").locator("a, button, pre, input").count()


@pytest.mark.parametrize("route", ROUTES)
def test_a_page_holds_the_longest_texts(
    filled: tuple[str, dict[str, str]], visit: Visit, route: str
) -> None:
    """Names of one word, of marks, right to left: none makes a page scroll sideways, or runs."""
    url, values = filled
    words = fits(visit, url + address(route, values))
    assert "Something broke" not in words


@pytest.mark.parametrize("route", ROUTES)
def test_without_a_key_a_page_asks_for_one(locked: str, visit: Visit, route: str) -> None:
    """Whether there is such a thing or not."""
    assert "asks for a key" in fits(visit, locked + address(route, NOTHING))
    assert visit.page.get_by_label("Key").is_visible()
