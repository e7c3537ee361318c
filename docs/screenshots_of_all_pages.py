"""Every page as a picture, in both themes and at two widths, to be inspected.

A service of its own has the data of the browser's tests::

    python -m docs.screenshots --all FOLDER
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import Browser

from tests.support.explorer.pages import exploring, pages_of
from tests.support.servers.browser import opened_browser
from tests.support.servers.server_process import Server

__all__ = ["draw_all"]

_SIZES: Final = {"desktop": (1280, 800), "phone": (360, 740)}
_SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
_MAX_HEIGHT: Final = 2400
"""The height of a picture in CSS pixels: below that, long tables go on as they began."""


def draw_all(folder: Path) -> int:
    """Draw all pages, sign-in and the API's own page among them.

    Args:
        folder: gets ``<page>-<desktop or phone>-<light or dark>.png`` each; it is made if needed.

    Returns:
        How many pictures were drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = 0
    with _addresses() as addresses, opened_browser() as browser:
        for size in _SIZES:
            for scheme in _SCHEMES:
                _draw(browser, addresses, size, scheme, folder)
                drawn += len(addresses)
                print(f"{len(addresses)} pages, {size}, {scheme}", flush=True)
    return drawn


@contextmanager
def _addresses() -> Iterator[dict[str, str]]:
    """The address of each page; two services answer, as one of them asks for keys."""
    with tempfile.TemporaryDirectory() as scratch:
        opened, locked = Path(scratch, "opened"), Path(scratch, "locked")
        opened.mkdir()
        locked.mkdir()
        running = Server(opened).start(), Server(locked, "--auth=required").start()
        try:
            with exploring(running[0]) as explorer:
                paths = pages_of(explorer) | {"the API": "/docs"}
                found = {what: explorer.address(path) for what, path in paths.items()}
                yield found | {"sign-in": f"{running[1].url}/sign-in"}
        finally:
            for each in running:
                each.stop()


def _draw(
    browser: Browser,
    addresses: dict[str, str],
    size: str,
    scheme: Literal["light", "dark"],
    folder: Path,
) -> None:
    width, height = _SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    for what, address in addresses.items():
        page.goto(address)
        if address.endswith("/docs"):
            page.locator(".opblock").first.wait_for()
        page.wait_for_timeout(400)  # for what scripts draw; a page that is live is never idle
        tall: int = page.evaluate("document.documentElement.scrollHeight")
        page.screenshot(
            path=folder / f"{what.replace(' ', '-')}-{size}-{scheme}.png",
            full_page=True,
            clip={"x": 0, "y": 0, "width": width, "height": min(tall, _MAX_HEIGHT)},
        )
    page.close()
