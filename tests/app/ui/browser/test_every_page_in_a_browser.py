"""Every page in a real browser, on real data: in reach of the keyboard, quiet and accessible."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.support.explorer.accessibility import DESK, assert_accessible
from tests.support.explorer.keyboard import walk
from tests.support.explorer.pages import PAGES, Explorer, pages_of
from tests.support.servers.browser import Visit, visiting_in

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", params=PAGES)
def opened(explorer: Explorer, tab: Page, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A page that was opened at a desk, for both tests; they come to it in the order below."""
    with visiting_in(tab, DESK) as visit:
        visit.open(explorer.address(pages_of(explorer)[request.param]))
        yield visit
        visit.assert_quiet()


def test_every_control_is_reached_and_seen(opened: Visit) -> None:
    """Tab begins at the skip link, comes to all that can have the focus, and marks where it is."""
    page = opened.page
    page.wait_for_load_state("networkidle")
    found = walk(page)
    assert "skip" == found.first
    assert not found.missed
    assert not found.unseen
    assert found.stops > page.locator("nav[aria-label=Explorer] a").count() > 3


def test_every_page_is_quiet_and_accessible(opened: Visit) -> None:
    """In light and dark, at a desk and on a phone of 360 pixels: no complaint, no fault."""
    page = opened.page
    page.evaluate("document.activeElement.blur()")
    assert page.locator("h1").count() == 1
    assert page.title().endswith("modelkin")
    assert_accessible(page, page.url)
    opened.assert_quiet()
