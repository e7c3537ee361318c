"""Sign-in in a real browser: by keyboard, from another site's link, and out again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from app.ui.sign_in_cookie import COOKIE
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.explorer.accessibility import assert_accessible
from tests.support.servers.browser import visiting
from tests.support.servers.server_process import Server

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that asks for keys."""
    running = Server(tmp_path_factory.mktemp("locked"), "--auth=required").start()
    yield running
    assert running.stop() == 0


def test_a_visitor_signs_in_and_out(browser: Browser, locked: Server) -> None:
    """By keyboard; scripts see no key; a link of another site leads in, and no form of one does."""
    elsewhere = locked.url.replace("127.0.0.1", "rebound.example")
    with visiting(browser) as visit:
        page = visit.open(f"{locked.url}/?q=wanted")
        assert_accessible(page, "sign-in")
        page.get_by_label("Key").press_sequentially("mk_wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("not a modelkin key")
        assert_accessible(page, "sign-in refused")
        page.get_by_label("Key").fill(new_key(locked))
        page.keyboard.press("Enter")
        page.wait_for_url(f"{locked.url}/?q=wanted")
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        assert COOKIE not in page.evaluate("document.cookie")
        visit.assert_quiet()

        page.goto(f"{elsewhere}/sign-in")
        page.evaluate("url => { location.href = url }", f"{locked.url}/?q=linked")
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        assert f"{locked.url}/?q=linked" == page.url

        page.get_by_role("button", name="Sign out").press("Enter")
        expect(page.get_by_label("Key")).to_be_visible()
        assert COOKIE not in {each.get("name") for each in page.context.cookies()}
