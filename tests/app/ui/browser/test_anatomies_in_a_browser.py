"""The pages of anatomies: walked by keyboard, and taken along."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.app.ui.conftest import Explorer
from tests.support.explorer.accessibility import PHONE
from tests.support.explorer.keyboard import tab_to
from tests.support.servers.browser import Visit

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("path", "pictures", "tables"),
    [
        ("/anatomies", [], {"anatomies": "model"}),
        ("/anatomies/mixer/assembled", ["picture", "parents"], {"rows": "from"}),
        ("/family?of=acme/base", ["tree"], {"edges": "from"}),
        ("/tensors?a=mixer/assembled&b=acme/base", ["picture"], {"tensors": "there"}),
    ],
)
def test_every_figure_is_taken_along(
    explorer: Explorer,
    visit: Visit,
    tmp_path: Path,
    path: str,
    pictures: list[str],
    tables: dict[str, str],
) -> None:
    """Each picture as PNG, and each table with as many rows as it shows."""
    page = visit.open(explorer.address(path))
    for name in pictures:
        assert downloaded(page, f"[data-png={name}]", tmp_path).startswith(b"\x89PNG\r\n\x1a\n")
    for name, column in tables.items():
        text = downloaded(page, f"[data-csv={name}]", tmp_path).decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text)))
        assert page.locator(f"#{name} tbody tr").count() == len(rows) > 0
        assert all(column in row for row in rows)


def downloaded(page: Page, button: str, folder: Path) -> bytes:
    """The file that a button gives."""
    with page.expect_download() as got:
        page.locator(button).click()
    got.value.save_as(folder / "file")
    return (folder / "file").read_bytes()


def test_a_keyboard_walks_a_family(explorer: Explorer, visit: Visit) -> None:
    """From what the list is narrowed to, to its parent and the copy in eight bits of that."""
    page = visit.open(explorer.address("/anatomies"))
    tab_to(page, "What was found")
    page.keyboard.type("assembled")
    tab_to(page, "Show")
    page.keyboard.press("Enter")
    page.wait_for_url("**found=assembled*")
    follow(page, "mixer/assembled", "mixer/assembled")
    follow(page, "The family as a tree", "Family of mixer/assembled")
    for name in ("acme/tuned", "acme/tuned-8bit"):
        follow(page, name, f"Family of {name}")
    assert "acme/base" in page.locator("#tree").inner_html()
    tab_to(page, "Compare acme/tuned-8bit with acme/tuned")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tensors?a=acme*tuned-8bit&b=acme*tuned")


def follow(page: Page, name: str, heading: str) -> None:
    """Press Tab until a link has the focus, then Enter."""
    tab_to(page, name)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(heading)


def test_arrows_show_what_a_phone_has_no_room_for(explorer: Explorer, visit: Visit) -> None:
    """Tab stops at a picture that is wider than the screen, and an arrow moves it."""
    page = visit.open(explorer.address("/anatomies/mixer/assembled"))
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    picture = page.locator(".scroll:has(#picture)")
    tab_to(page, picture.get_attribute("aria-label") or "")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.activeElement.scrollLeft > 0")


def test_a_phone_has_a_family_as_a_list(explorer: Explorer, visit: Visit) -> None:
    """Each model below the nearest of its bases, all in sight, and the picture is not there."""
    visit.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page = visit.open(explorer.address("/family?of=acme/tuned-8bit"))
    assert not page.locator("#tree").is_visible()
    base = page.locator("#branches > li").filter(has_text="acme/base")
    model = base.locator("li").filter(has_text="acme/tuned-8bit").last
    assert "% of lines" in model.inner_text()
    place = model.locator("a[aria-current=true]").bounding_box()
    assert place is not None
    assert 0 <= place["x"] <= PHONE[0] - place["width"]


def test_a_narrow_screen_begins_with_the_model_of_a_family(
    explorer: Explorer, visit: Visit
) -> None:
    """Not with a base that may be three columns to the left of it."""
    visit.page.set_viewport_size({"width": 720, "height": 800})
    page = visit.open(explorer.address("/family?of=acme/tuned-8bit"))
    place = page.locator("#tree a[aria-current] rect").bounding_box()
    assert place is not None
    assert 0 <= place["x"] <= 720 - place["width"]
    assert page.locator(".scroll", has=page.locator("#tree")).evaluate("e => e.scrollLeft") > 0
