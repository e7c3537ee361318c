"""The page of a report in a browser: under its policy, light and dark, wide, narrow and printed."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from app.infra.http.middleware.security_headers import POLICY, page_policy
from app.kinship.reports.composing import compose
from app.kinship.reports.renderings.page import STYLE_SOURCE
from tests.app.kinship.reports.planted import HOSTILE, REPORT_ID, evidence, page_of
from tests.support.explorer.accessibility import faults
from tests.support.servers.browser import visiting

pytestmark = pytest.mark.browser

ADDRESS = "http://127.0.0.1/report"
PRINTED_WIDTH = 680
"""The width of A4 between its margins, in pixels of CSS."""
HEADERS = {"Content-Type": "text/html", POLICY: page_policy(style_src=STYLE_SOURCE)}


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize(
    ("scheme", "paper"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(15, 19, 27)")]
)
def test_a_report_is_read_anywhere(browser: Browser, scheme: str, paper: str, width: int) -> None:
    """No complaint of its policy, no fault of accessibility, and no scrolling to the side."""
    body = page_of(compose(REPORT_ID, evidence()))
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    with visiting(browser, **options) as visit:
        visit.page.route(ADDRESS, lambda route: route.fulfill(body=body, headers=HEADERS))
        shown = visit.open(ADDRESS)
        visit.assert_quiet()
        assert [ADDRESS] == visit.requests
        assert paper == shown.evaluate("getComputedStyle(document.body).backgroundColor")
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert HOSTILE in shown.inner_text("body")
        assert not faults(shown)


def test_a_report_is_printed_as_tables(browser: Browser) -> None:
    """On A4 nothing is cut off, and the head of a table is repeated: it is no phone."""
    body = page_of(compose(REPORT_ID, evidence()))
    with visiting(browser, viewport={"width": PRINTED_WIDTH, "height": 1000}) as visit:
        visit.page.route(ADDRESS, lambda route: route.fulfill(body=body, headers=HEADERS))
        visit.page.emulate_media(media="print")
        shown = visit.open(ADDRESS)
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        displays = "tag => getComputedStyle(document.querySelector(tag)).display"
        found = [shown.evaluate(displays, tag) for tag in ("thead", "tbody tr", "tbody td")]
        assert ["table-header-group", "table-row", "table-cell"] == found
