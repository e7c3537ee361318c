"""What axe-core finds wrong with a page, by all of its rules, in both themes and at two widths."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

__all__ = ["DESK", "PHONE", "assert_accessible", "faults", "show"]

DESK: Final = (1280, 800)
PHONE: Final = (360, 740)
"""Width and height of a view."""

Theme = Literal["light", "dark"]

# What axe says of the rules that are kept is long, and stays in the page.
_RUN: Final = """
async (ignored) => {
  const rules = Object.fromEntries(ignored.map((rule) => [rule, { enabled: false }]));
  const how = { resultTypes: ["violations"], iframes: false, selectors: false, rules };
  const { violations } = await axe.run(how);
  return violations.flatMap(({ id, impact, nodes }) => nodes.map(({ html }) => [id, impact, html]));
}
"""
# Of a text above a gradient axe says that it cannot know its contrast: colours are judged without.
_NO_SHADOWS: Final = """
const plain = new CSSStyleSheet();
plain.replaceSync(".scroll, .tabs ul { background-image: none !important }");
document.adoptedStyleSheets = [plain];
"""
_OPEN_DETAILS: Final = """
for (const each of document.querySelectorAll("details:not([open])")) each.open = true;
"""


def faults(page: Page, *, ignored: Collection[str] = ()) -> list[str]:
    """What is wrong with a page as it stands, whatever axe's own name for its severity.

    Args:
        ignored: rules that are not tried.
    """
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE_SCRIPT)
        page.evaluate(_NO_SHADOWS)
    found: list[tuple[str, str, str]] = page.evaluate(_RUN, list(ignored))
    return [f"{rule} ({impact}): {html[:160]}" for rule, impact, html in found]


def show(page: Page, scheme: Theme, size: tuple[int, int]) -> None:
    """Give a page this theme and this size."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": size[0], "height": size[1]})


def assert_accessible(page: Page, what: str) -> None:
    """All of it keeps all rules: light at a desk, dark on a phone, where nothing is cut off.

    The parts that open do so first. Each theme and each width meets every rule once; colours are
    the same at both widths, and so is the structure in both themes. The page stays as it was last.
    """
    page.evaluate(_OPEN_DETAILS)
    views: tuple[tuple[Theme, tuple[int, int]], ...] = (("light", DESK), ("dark", PHONE))
    for scheme, size in views:
        show(page, scheme, size)
        found = faults(page)
        assert not found, f"{what}, {scheme}, {size[0]} pixels: {'; '.join(found)}"
    beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert 0 == page.evaluate(beyond), what
