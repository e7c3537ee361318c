"""One browser for all these tests, and a service of its own for pages of what reaches out: jobs,
sources, subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser

from tests.support.servers.browser import opened_browser
from tests.support.servers.server_process import Server


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The browser; tests of other folders may run event loops, which Playwright allows none."""
    with opened_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service that may call this machine."""
    running = Server(tmp_path_factory.mktemp("pages"), MODELKIN_EGRESS_ALLOW="127.0.0.1").start()
    with httpx.Client(base_url=running.url, timeout=60, trust_env=False) as http:
        yield http
    assert running.stop() == 0
