"""A visitor's keyboard: Tab until something has the focus, and a walk over all that can have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from playwright.sync_api import Page

__all__ = ["Walk", "focused", "tab_to", "walk"]

_MAX_STOPS: Final = 150

_NAME: Final = """
() => {
  const at = document.activeElement;
  const label = at.labels?.[0]?.firstChild?.textContent;
  return (at.ariaLabel || label || at.textContent).trim();
}
"""

# Where Tab should stop: what can have the focus and is seen. Of the radio buttons of one name it
# stops at one, of a drawing at its chosen part (the others have the tabindex -1).
_BEGIN: Final = """
() => {
  const kinds = "a[href], button, input, select, textarea, summary, [tabindex]";
  const shown = (each) => each.checkVisibility({ visibilityProperty: true });
  const taken = (each) => each.type === "radio"
    && !each.checked && document.querySelector(`input[name="${each.name}"]:checked`) !== null;
  const wanted = [...document.querySelectorAll(kinds)].filter(
    (each) => each.tabIndex >= 0 && !each.disabled && shown(each) && !taken(each));
  const name = (each) => each.outerHTML.slice(0, 120);
  const found = { wanted, stops: [], unseen: [], wrapped: false };
  function isMarked(at) {
    const marked = at.closest("g.node")?.querySelector(".ring") ?? at;
    const style = getComputedStyle(marked);
    return marked === at ? style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2
      : style.stroke !== "none" && parseFloat(style.strokeWidth) > 0;
  }
  function isUncovered(at) {
    const box = [...at.getClientRects()].find((each) => each.width && each.height);
    if (!box) return false;
    const inside = (low, high, size) => (Math.max(low, 0) + Math.min(high, size)) / 2;
    const x = inside(box.left, box.right, innerWidth), y = inside(box.top, box.bottom, innerHeight);
    const above = document.elementFromPoint(x, y);
    return above !== null && (at.contains(above) || above.contains(at) || at.labels?.length > 0);
  }
  // At the next Tab what has the focus is where it stays, and as it stays.
  document.addEventListener("keydown", (event) => {
    const at = document.activeElement;
    if (event.key !== "Tab" || at === document.body) return;
    found.wrapped ||= found.stops.includes(at);
    if (found.wrapped) return;
    found.stops.push(at);
    if (!isMarked(at) || !isUncovered(at)) found.unseen.push(name(at));
  }, true);
  window.walked = () => ({
    first: found.stops[0]?.className ?? "", stops: found.stops.length, unseen: found.unseen,
    missed: wanted.filter((each) => each.isConnected && !found.stops.includes(each)).map(name),
  });
  return wanted.length;
}
"""


@dataclass(frozen=True)
class Walk:
    """What Tab came to, from the start of a page to its end.

    Attributes:
        first: the class of the first stop.
        stops: how many different elements had the focus.
        missed: what is seen and can have the focus, and never had it.
        unseen: what had the focus without a mark, or below something else, or out of view.
    """

    first: str
    stops: int
    missed: list[str]
    unseen: list[str]


def focused(page: Page) -> str:
    """The name of what has the focus."""
    name: str = page.evaluate(_NAME)
    return name


def tab_to(page: Page, name: str) -> None:
    """Press Tab until something of this name has the focus."""
    for _ in range(_MAX_STOPS):
        page.keyboard.press("Tab")
        if focused(page) == name:
            return
    raise AssertionError(f"Tab never reaches {name!r}")


def walk(page: Page) -> Walk:
    """Hold Tab down from the start of a page until it has come around."""
    for _ in range(page.evaluate(_BEGIN) + 1):
        page.keyboard.down("Tab")  # another one repeats it
    found: dict[str, Any] = page.evaluate("walked()")
    # Chromium stops at what scrolls, too.
    for _ in range(_MAX_STOPS):
        if not found["missed"]:
            break
        page.keyboard.down("Tab")
        found = page.evaluate("walked()")
    page.keyboard.up("Tab")
    return Walk(**found)
