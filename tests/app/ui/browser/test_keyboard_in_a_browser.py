"""The keyboard alone works each kind of page; that it reaches every control is tested of all."""

from __future__ import annotations

import csv
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.explorer.accessibility import DESK, PHONE, faults, show
from tests.support.explorer.keyboard import focused, tab_to, walk
from tests.support.explorer.pages import Explorer, pages_of
from tests.support.servers.browser import Visit

pytestmark = pytest.mark.browser

QUESTIONS = ("a model", "a clustering", "a source", "a subscription", "keys")
"""The pages with a button that asks before it acts."""
FAULTY = """
<a class="skip" href="#b">Skip</a>
<button id="a">a</button> <button id="b">b</button> <button id="c">c</button>
<style>
:focus-visible { outline: 3px solid } .cover { position: fixed; inset: 0; background: red }
</style>
"""
"""A page without a fault, to which one is added."""
WITHIN = "document.activeElement.matches('body, dialog *')"
"""Behind an open question nothing has the focus; after its last button the browser itself has it,
and a page sees its body.
"""


def assert_no_fault(page: Page) -> None:
    """What is open keeps all rules, light at a desk and dark on a phone."""
    show(page, "dark", PHONE)
    assert not faults(page)
    show(page, "light", DESK)
    assert not faults(page)


@pytest.mark.parametrize("what", QUESTIONS)
def test_escape_closes_a_question(explorer: Explorer, visit: Visit, what: str) -> None:
    """Tab reaches nothing behind it; Escape answers no and leads back to the button."""
    page = visit.open(explorer.address(pages_of(explorer)[what]))
    button = page.locator("form[data-confirm] button").first
    name = button.get_attribute("aria-label") or button.inner_text()
    tab_to(page, name)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert_no_fault(page)
    for _ in range(4):
        page.keyboard.press("Tab")
        assert page.evaluate(WITHIN)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert name == focused(page)


def test_escape_closes_suggestions(explorer: Explorer, visit: Visit) -> None:
    """The text stays, and so does the focus."""
    page = visit.open(explorer.address(f"/spaces/{explorer.models.name}"))
    page.keyboard.press("/")
    page.keyboard.type("tag:")
    page.locator("#search-options [role=option]").first.wait_for()
    page.keyboard.press("ArrowDown")
    assert_no_fault(page)
    page.keyboard.press("Escape")
    expect(page.locator("#search-options")).to_be_hidden()
    assert ("search", "tag:") == (
        page.evaluate("document.activeElement.id"),
        page.locator("#search").input_value(),
    )


def test_a_keyboard_finds_and_opens_a_model_on_the_map(explorer: Explorer, visit: Visit) -> None:
    """A part of its name marks it; arrows and + move the view; Enter opens what is marked."""
    page = visit.open(explorer.address(pages_of(explorer)["a map"]))
    page.locator("#map-page[data-complete]").wait_for()
    tab_to(page, "Find on the map")
    page.keyboard.type("m00")
    page.locator("#map-found [role=option]").nth(1).wait_for()
    assert_no_fault(page)
    page.keyboard.press("Escape")
    expect(page.locator("#map-found")).to_be_hidden()
    page.keyboard.press("Control+A")
    page.keyboard.type("m003")
    page.locator("#map-found [role=option]").first.wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**model=org0*m003*")
    tab_to(page, page.locator("#map").get_attribute("aria-label") or "")
    before = page.url
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("url => location.href !== url", arg=before)
    page.keyboard.press("Enter")
    page.wait_for_url(explorer.model("org0/m003"))


def test_a_keyboard_compares_two_models(explorer: Explorer, visit: Visit, tmp_path: Path) -> None:
    """A model leads to a pair, whose tensors are filtered, sorted and taken along."""
    page = visit.open(explorer.model("org0/m000"))
    found = explorer.models.neighbors("org0/m000", k=5)["items"]
    nearest = next(item["model"] for item in found if item["estimate"] == "exact")
    tab_to(page, f"Compare with {nearest}")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/pairs?a=org0*m000&b={quote(nearest, safe='')}")
    tab_to(page, "CSV")
    with page.expect_download() as got:
        page.keyboard.press("Enter")
    got.value.save_as(tmp_path / "tensors.csv")
    with (tmp_path / "tensors.csv").open(encoding="utf-8-sig") as file:
        assert 5 == len(list(csv.DictReader(file)))
    tab_to(page, "Tensors whose name has")
    page.keyboard.type("layers.3")
    expect(page.locator("#tensors tbody tr:visible")).to_have_count(1)
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    expect(page.locator("#tensors tbody tr:visible")).to_have_count(5)
    tab_to(page, "similarity")
    page.keyboard.press("Enter")
    similarities = page.locator("#tensors tbody td:nth-child(6)").all_inner_texts()
    assert sorted(map(float, similarities), reverse=True) == [float(text) for text in similarities]


def test_a_keyboard_finds_and_opens_a_job(explorer: Explorer, visit: Visit) -> None:
    """A kind is chosen and shown; its job opens, and leads to what it made."""
    page = visit.open(explorer.address(f"/spaces/{explorer.models.name}/jobs"))
    tab_to(page, "Kind")
    page.keyboard.type("clustering")
    tab_to(page, "Show")
    page.keyboard.press("Enter")
    page.wait_for_url("**kind=cluster*")
    row = page.locator("#jobs-table tbody tr")
    expect(row).to_have_count(1)
    tab_to(page, row.get_by_role("link").first.inner_text())
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*-*")
    tab_to(page, "The clustering")
    page.keyboard.press("Enter")
    page.wait_for_url("**/clusterings/*-*")


@pytest.mark.parametrize(
    ("fault", "missed", "unseen"),
    [
        ("", 0, 0),
        ("<style>#b:focus { outline: none }</style>", 0, 1),
        ("<div class='cover'></div>", 0, 4),
        ("<script>b.onfocus = () => b.blur()</script>", 1, 0),
        ("<script>b.onkeydown = (event) => event.preventDefault()</script>", 1, 0),
    ],
)
def test_the_walk_finds_what_is_wrong(
    browser: Browser, fault: str, missed: int, unseen: int
) -> None:
    """No mark, something above it, a focus that is thrown off, and one that is kept."""
    page = browser.new_page()
    page.set_content(FAULTY + fault)
    found = walk(page)
    page.close()
    assert (missed, unseen) == (len(found.missed), len(found.unseen))
