"""Tables on a phone: what lies sideways is announced, and sentences have room."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.app.ui.conftest import Explorer
from tests.support.explorer.accessibility import PHONE
from tests.support.servers.browser import Visit

pytestmark = pytest.mark.browser

# Whether more lies sideways, and how the background shows it.
_SHADOW = """
part => {
  const style = getComputedStyle(part);
  return [part.scrollWidth > part.clientWidth, style.backgroundAttachment, style.backgroundImage];
}
"""


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("/anatomies", "#anatomies"),
        ("/relatives?of=acme/base", "#relatives"),
        ("/spaces/{space}/lineages?show=all", "#lineages"),
        ("/spaces/{space}/pairs?a=org0/m000&b=org0/m003", "#depth"),
        ("/spaces/{space}/models/org0/m003", "#neighbors"),
        ("/spaces/{space}/models/org0/m003", "#donors"),
    ],
)
def test_a_shadow_says_that_more_lies_sideways(
    explorer: Explorer, visit: Visit, path: str, table: str
) -> None:
    """One of either side that stays, below a cover that moves along with the content."""
    visit.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page = visit.open(explorer.address(path.format(space=explorer.models.name)))
    part = page.locator(".scroll", has=page.locator(table))
    scrolls, attachment, image = part.evaluate(_SHADOW)
    assert scrolls
    assert "local, local, scroll, scroll" == attachment
    assert 4 == image.count("linear-gradient")


def test_an_audit_is_read_on_a_phone(explorer: Explorer, visit: Visit) -> None:
    """Each reason has most of the width, and its verdict beside the name."""
    visit.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page = visit.open(explorer.address(f"/spaces/{explorer.models.name}/lineages?show=all"))
    row = page.locator("#lineages tbody tr").first
    expect(row.locator("th .verdict")).to_be_visible()
    expect(row.locator("td .verdict")).to_be_hidden()
    assert row.locator("th p").first.evaluate("e => e.offsetWidth") > 0.75 * PHONE[0]


def test_what_was_found_is_read_on_a_phone(explorer: Explorer, visit: Visit) -> None:
    """Beside the names of the models, half of the screen is for the sentence."""
    visit.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page = visit.open(explorer.address("/anatomies"))
    found = page.locator("#anatomies td.long").first.bounding_box()
    assert found is not None
    assert found["width"] > PHONE[0] / 2
    assert found["x"] + found["width"] < PHONE[0]


def test_why_an_event_was_ignored_is_read_on_a_phone(explorer: Explorer, visit: Visit) -> None:
    """The model stands below the event, and the outcome with its reason has the room."""
    visit.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page = visit.open(explorer.address(f"/sources/{explorer.source}"))
    row = page.locator("#events tbody tr").first
    assert row.locator("td.long").evaluate("e => e.offsetWidth") > 0.4 * PHONE[0]
    expect(row.locator("td").first).to_be_hidden()
