"""A headless Chromium, driven by Playwright, and what it saw of the pages that it visited."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

from tests.support.servers.guardian import guard
from tests.support.tiers import needs

__all__ = ["BROWSER", "Visit", "opened_browser", "opened_tab", "visiting", "visiting_in"]

_NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER: Final = next(filter(None, map(shutil.which, _NAMES)), None)
"""The path of a browser on this machine, if there is one; the one without a desktop is lightest."""

_TIMEOUT_MS: Final = 30_000.0
_FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
    # No name is found but this machine's; `rebound.example` is one that an attacker has rebound.
    "--host-resolver-rules=MAP rebound.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_FILES: Final = frozenset({"script", "stylesheet", "image", "font"})
"""What a page is made of, as Playwright names it."""
expect.set_options(timeout=_TIMEOUT_MS)

_LISTEN: Final = """
addEventListener("securitypolicyviolation", (event) => console.error(
  `policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


@dataclass
class Visit:
    """A tab of the browser.

    Attributes:
        page: the tab, as Playwright has it.
        requests: the addresses that it asked, but for ``data:`` and ``blob:``.
        complaints: violations of a page's policy, requests that failed, errors of scripts,
            dialogs, and files of a page that are not there; not the statuses of other answers.
    """

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listeners: dict[Any, Callable[[Any], None]] = {
            "console": self._note,
            "pageerror": self._note_error,
            "dialog": self._note_dialog,
            "request": self._note_request,
            "requestfailed": self._note_failure,
            "response": self._note_response,
        }
        for event, listener in self._listeners.items():
            self.page.on(event, listener)

    def end(self) -> None:
        """Note nothing more; the tab is free for another visitor."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    def open(self, url: str) -> Page:
        """Open an address, and wait until its scripts have run."""
        self.page.goto(url)
        return self.page

    def assert_quiet(self) -> None:
        """Nothing was complained about, and no other service was asked."""
        assert not self.complaints
        assert self.requests
        own = urlsplit(self.page.url).netloc
        assert {own} == {urlsplit(url).netloc for url in self.requests}

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "the server responded with a status" not in message.text:
            self.complaints.append(message.text)

    def _note_error(self, error: Exception) -> None:
        self.complaints.append(str(error))

    def _note_failure(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # a page that was left, or a newer suggestion
            self.complaints.append(f"{request.url}: {request.failure}")

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith(("data:", "blob:")):
            self.requests.append(request.url)

    def _note_response(self, response: Response) -> None:
        if response.status >= 400 and response.request.resource_type in _FILES:
            self.complaints.append(f"{response.url}: {response.status}")

    def _note_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextlib.contextmanager
def opened_browser() -> Iterator[Browser]:
    """The browser of this machine."""
    needs("browser")
    guard()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=_FLAGS)
        yield browser
        browser.close()


@contextlib.contextmanager
def opened_tab(browser: Browser, **options: Any) -> Iterator[Page]:
    """A tab with a profile of its own.

    Args:
        options: of Playwright's context: ``color_scheme``, ``viewport``, ``java_script_enabled``.
    """
    context = browser.new_context(**options)
    context.set_default_timeout(_TIMEOUT_MS)
    context.add_init_script(_LISTEN)
    yield context.new_page()
    context.close()


@contextlib.contextmanager
def visiting(browser: Browser, **options: Any) -> Iterator[Visit]:
    """A visitor with a profile of its own, see :func:`opened_tab`."""
    with opened_tab(browser, **options) as tab:
        yield Visit(tab)


@contextlib.contextmanager
def visiting_in(tab: Page, size: tuple[int, int]) -> Iterator[Visit]:
    """A visitor in a tab that others had before; a new one would start a process.

    Of them only the files of pages are kept, and what a page stores in the browser: the theme.

    Args:
        size: width and height of the view.
    """
    tab.goto("about:blank")
    tab.context.clear_cookies()
    tab.mouse.move(0, 0)
    tab.set_viewport_size({"width": size[0], "height": size[1]})
    tab.emulate_media(color_scheme="light", reduced_motion="no-preference")
    visit = Visit(tab)
    try:
        yield visit
    finally:
        visit.end()
