"""Every page in a real browser: nothing violates its policy, and nothing asks another origin."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from modelkin._validation import quote_model
from tests.app.ui.test_explorer import HOSTILE, MODELS, M
from tests.support.declared_problems import checked
from tests.support.http_space import Space, ok
from tests.support.servers.browser import Browser, Visit
from tests.support.servers.server_process import Server

pytestmark = pytest.mark.browser

HOSTILE_MODELS = [
    "javascript:alert",
    "https:elsewhere.example/x",
    "data:text/html",
    "ünï/中文",
    "..a/b..",
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser, for which ``rebound.example`` is this machine."""
    opened = Browser(
        tmp_path_factory.mktemp("profile"), "--host-resolver-rules=MAP rebound.example 127.0.0.1"
    )
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def http(sqlite_server: Server) -> Iterator[httpx.Client]:
    """A client of the service whose pages are visited."""
    with checked(httpx.Client(base_url=sqlite_server.url, trust_env=False)) as client:
        yield client


@pytest.fixture(scope="module")
def hostile(http: httpx.Client) -> Space:
    """A space whose layout, models, tags, sources and attributes are all attempts."""
    space = Space(http, M, layout=[{"name": HOSTILE, "shape": [M]}])
    for name in HOSTILE_MODELS:
        space.put(name, MODELS["m000"])
        body = {"attributes": {HOSTILE: HOSTILE}, "source": HOSTILE, "base_model": "javascript:x"}
        ok(http.patch(space.path("models", name), json=body))
    return space


def assert_quiet(visit: Visit, http: httpx.Client) -> None:
    """Nothing was complained about, and this service alone was asked."""
    assert not visit.complaints
    assert visit.requests
    own = http.base_url.netloc.decode()
    assert {own} == {urlsplit(url).netloc for url in visit.requests}


def test_no_page_of_the_explorer_violates_its_policy(
    http: httpx.Client, hostile: Space, browser: Browser
) -> None:
    """Whatever the names are: no violation, no dialog, no request elsewhere; styles apply."""
    width = "getComputedStyle(document.querySelector('main')).maxWidth"
    paths = ["", f"spaces/{hostile.name}", "spaces/nowhere", "spaces/<script>alert(1)<script>"]
    paths += [f"spaces/{hostile.name}/models/{quote_model(name)}" for name in HOSTILE_MODELS]
    for path in paths:
        with browser.page(f"{http.base_url}/{path}") as (visit, page):
            assert "1088px" == page.value(width)
            assert not page.value("document.scripts.length")
        assert_quiet(visit, http)


def test_a_bar_is_as_long_as_its_similarity(
    http: httpx.Client, hostile: Space, browser: Browser
) -> None:
    """Equal supports have a full bar: its width is not a style, which the policy would drop."""
    url = f"{http.base_url}/spaces/{hostile.name}/models/{quote_model(HOSTILE_MODELS[0])}"
    share = (
        "document.querySelector('.bar rect').getBoundingClientRect().width"
        " / document.querySelector('.bar').getBoundingClientRect().width"
    )
    with browser.page(url) as (visit, page):
        assert page.value(share) > 0.8
    assert_quiet(visit, http)


def test_the_apis_page_works_from_its_own_files(http: httpx.Client, browser: Browser) -> None:
    """Swagger UI shows every operation, and tries one, under its policy."""
    click = "document.querySelector({!r}).click()"
    with browser.page(f"{http.base_url}/docs", until="document.querySelector('.opblock')") as (
        visit,
        page,
    ):
        paths = http.get("/openapi.json").json()["paths"].values()
        shown = page.value("document.querySelectorAll('.opblock').length")
        assert sum(map(len, paths)) == shown
        operation = "[id$='livez']"
        for part in ("button.opblock-summary-control", "button.try-out__btn", "button.execute"):
            page.wait_for(f"document.querySelector({operation + ' ' + part!r})")
            page.value(click.format(f"{operation} {part}"))
        page.wait_for(
            f"document.querySelector({operation + ' .live-responses-table .response-col_status'!r})"
        )
    assert_quiet(visit, http)
    assert f"{http.base_url}/livez" in visit.requests


def test_the_answers_of_the_api_are_quiet(http: httpx.Client, browser: Browser) -> None:
    """A browser that opens one runs nothing and asks nothing of another origin."""
    for path in ("livez", "v1/spaces", "openapi.json"):
        with browser.page(f"{http.base_url}/{path}") as (visit, page):
            assert page.value("document.body.innerText.length")
        assert_quiet(visit, http)


def test_a_rebound_name_reads_nothing(http: httpx.Client, browser: Browser) -> None:
    """A browser takes the page's name for this machine: the service does not."""
    with browser.page(f"http://rebound.example:{http.base_url.port}/v1/spaces") as (_, page):
        assert "misdirected" in page.value("document.body.innerText")
