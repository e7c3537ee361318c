"""What axe-core finds wrong with a page, by all of its rules, in both themes and at two widths."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final, Literal

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

__all__ = ["DESK", "PHONE", "assert_accessible", "faults", "show"]

DESK: Final = (1280, 800)
PHONE: Final = (360, 740)
"""Width and height of a view."""

Theme = Literal["light", "dark"]

_RUN: Final = f"""
() => axe.run({json.dumps({"resultTypes": ["violations"], "iframes": False})})
"""
_OPEN_DETAILS: Final = """
for (const each of document.querySelectorAll("details:not([open])")) each.open = true;
"""


def faults(page: Page, *, ignored: Collection[str] = ()) -> list[str]:
    """What is wrong with a page as it stands, whatever axe's own name for its severity.

    Args:
        ignored: rules whose findings are left out.
    """
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE_SCRIPT)
    found: list[dict[str, Any]] = page.evaluate(_RUN)["violations"]
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:160]}"
        for each in found
        if each["id"] not in ignored
        for node in each["nodes"]
    ]


def show(page: Page, scheme: Theme, size: tuple[int, int]) -> None:
    """Give a page this theme and this size."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": size[0], "height": size[1]})


def assert_accessible(page: Page, what: str) -> None:
    """All of it keeps all rules: light at a desk, dark on a phone, where nothing is cut off.

    The parts that open do so first. Each theme and each width meets every rule once; colours are
    the same at both widths, and so is the structure in both themes.
    """
    page.evaluate(_OPEN_DETAILS)
    views: tuple[tuple[Theme, tuple[int, int]], ...] = (("light", DESK), ("dark", PHONE))
    for scheme, size in views:
        show(page, scheme, size)
        assert not faults(page), f"{what}, {scheme}, {size[0]} pixels"
    beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert 0 == page.evaluate(beyond), what
    show(page, "light", DESK)
