"""One service and one set of data for all tests of pages in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.support.explorer.accessibility import DESK
from tests.support.explorer.pages import HOSTILE, HOSTILE_NAMES, TENSORS, Explorer, M, exploring
from tests.support.servers.browser import Visit, opened_browser, opened_tab, visiting_in
from tests.support.servers.server_process import Server

__all__ = ["HOSTILE", "HOSTILE_NAMES", "TENSORS", "Explorer", "M"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser."""
    with opened_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """The tab that one visitor has after the other."""
    with opened_tab(browser) as tab:
        yield tab


@pytest.fixture
def visit(tab: Page) -> Iterator[Visit]:
    """A visitor at a desk; whatever a test does, no page may complain."""
    with visiting_in(tab, DESK) as visit:
        yield visit
        visit.assert_quiet()


@pytest.fixture(scope="session")
def explorer(sqlite_server: Server) -> Iterator[Explorer]:
    """The service with its data."""
    with exploring(sqlite_server) as explorer:
        yield explorer
