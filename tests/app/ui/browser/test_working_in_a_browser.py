"""What one does on pages, by keyboard alone: search, sort, take along, edit, delete."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from modelkin import Support
from tests.app.ui.conftest import Explorer, M
from tests.support.explorer.keyboard import focused, tab_to
from tests.support.http_space import Space
from tests.support.servers.browser import Visit, visiting

pytestmark = pytest.mark.browser


def test_a_keyboard_skips_to_the_content(explorer: Explorer, visit: Visit) -> None:
    """The first stop leads past the header, and it is seen there."""
    page = visit.open(explorer.address(f"/spaces/{explorer.models.name}/about"))
    page.wait_for_timeout(100)  # scripts that move a page may move where Tab begins
    page.keyboard.press("Tab")
    assert "Skip to the content" == focused(page)
    assert page.locator(".skip").bounding_box()["x"] >= 0  # type: ignore[index]
    page.keyboard.press("Enter")
    assert "main" == page.evaluate("document.activeElement.id")


def test_a_keyboard_finds_a_model_by_completion(explorer: Explorer, visit: Visit) -> None:
    """``/``, a few letters, arrows and Enter lead to the model; a tag completes to its search."""
    page = visit.open(explorer.address(f"/spaces/{explorer.models.name}"))
    page.keyboard.press("/")
    page.keyboard.type("m003")
    expect(page.get_by_role("option", name="org0/m003")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(explorer.model("org0/m003"))
    page.keyboard.press("/")
    page.keyboard.press("Control+A")
    page.keyboard.type("tag:site")
    expect(page.locator("#search-options [role=option]")).to_have_count(2)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url("**?q=tag%3A%22site+1%22*")
    found = page.locator("#models tbody tr").count()
    listed = explorer.http.get(explorer.models.path("models"), params={"tag": "site 1"}).json()
    assert len(listed["items"]) == found > 1


def test_suggestions_fit_what_is_typed_before_the_answer(explorer: Explorer, visit: Visit) -> None:
    """No key opens a model that the text has left; a mark stays when the answer comes."""
    page = visit.open(explorer.address(f"/spaces/{explorer.models.name}"))
    options = page.locator("#search-options [role=option]")
    page.keyboard.press("/")
    page.keyboard.type("m00")
    expect(options.nth(1)).to_be_visible()
    held: list[Route] = []
    page.route("**/completions?q=m003", lambda route: held.append(route))
    page.keyboard.type("3")
    expect(options).to_have_text("org0/m003model")
    page.keyboard.press("ArrowDown")
    expect(options).to_have_attribute("aria-selected", "true")
    while not held:
        page.wait_for_timeout(10)
    with page.expect_response("**/completions?q=m003"):
        held.pop().continue_()
    expect(page.locator("#announcer")).to_have_text("1 suggestion")
    expect(options).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    page.wait_for_url(explorer.model("org0/m003"))


def test_a_keyboard_sorts_a_table(explorer: Explorer, visit: Visit) -> None:
    """Enter on a column's name sorts by it, and again the other way; screen readers say so."""
    page = visit.open(explorer.model("org0/m000"))
    head = page.locator("#neighbors thead th").nth(1)
    column = page.locator("#neighbors tbody td:nth-child(2)")
    shown = [float(text.split()[0]) for text in column.all_inner_texts()]
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert "descending" == head.get_attribute("aria-sort")
    page.keyboard.press("Enter")
    assert "ascending" == head.get_attribute("aria-sort")
    assert sorted(shown) == [float(text.split()[0]) for text in column.all_inner_texts()]


def test_the_theme_is_chosen_and_lasts(explorer: Explorer, browser: Browser) -> None:
    """The switch turns light into dark, on the next page too."""
    with visiting(browser) as visit:  # the choice stays in its own profile
        page = visit.open(explorer.address("/"))
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        page.get_by_role("button", name="Dark or light").press("Enter")
        dark = page.evaluate(ground)
        assert light != dark
        page.goto(explorer.model("org0/m000"))
        assert dark == page.evaluate(ground)
        visit.assert_quiet()


def test_tables_and_plots_are_taken_along(explorer: Explorer, visit: Visit, tmp_path: Path) -> None:
    """The CSV has the numbers of the API in full, each PNG is a picture of some size."""
    page = visit.open(explorer.model("org1/m001"))
    with page.expect_download() as got:
        page.locator("[data-csv=neighbors]").click()
    got.value.save_as(tmp_path / "n.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "n.csv").read_text("utf-8-sig"))))
    items = explorer.models.neighbors("org1/m001", k=12)["items"]
    assert [item["model"] for item in items] == [row["model"] for row in rows]
    expected = [item["similarity"] for item in items]
    assert expected == [float(row["similarity"]) for row in rows]
    for plot, file, width in (("drift", "drift", 800), ("neighbors", "neighbours", 1440)):
        with page.expect_download() as got:
            page.locator(f"[data-png={plot}]").click()
        got.value.save_as(tmp_path / "p.png")
        picture = (tmp_path / "p.png").read_bytes()
        assert picture.startswith(b"\x89PNG\r\n\x1a\n")
        assert int.from_bytes(picture[16:20]) >= width
        assert f"org1-m001-{file}.png" == got.value.suggested_filename


@pytest.fixture
def own(explorer: Explorer) -> Space:
    """A space that a test may change."""
    space = Space(explorer.http, M)
    space.put("org/mine", Support.from_indices(range(50), M), tags=["old"])
    space.put("org/other", Support.from_indices(range(20, 70), M))
    return space


def test_a_keyboard_edits_a_model(explorer: Explorer, visit: Visit, own: Space) -> None:
    """Tags, base and attributes are saved; what the service refuses is said, and nothing lost."""
    page = visit.open(explorer.model("org/mine", own.name))
    tab_to(page, "Edit")
    page.keyboard.press("Enter")
    page.get_by_label("Tags").fill("new\nround-2")
    page.get_by_label("Base model").fill("org//x")
    page.get_by_role("button", name="Add an attribute").press("Enter")
    page.keyboard.type("digit")
    page.get_by_label("Type").select_option("number")
    page.get_by_label("Value").fill("7")
    tab_to(page, "Save")
    page.keyboard.press("Enter")
    expect(page.locator("#edit .outcome")).to_contain_text("segment 2 of model name")
    assert "new\nround-2" == page.get_by_label("Tags").input_value()
    page.get_by_label("Base model").fill("org/other")
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.locator(".tag").first).to_have_text("new")
    model = own.model("org/mine")
    assert ["new", "round-2"] == model["tags"]
    assert ("org/other", {"digit": 7}) == (model["base_model"], model["attributes"])


def test_a_deletion_is_confirmed(explorer: Explorer, visit: Visit, own: Space) -> None:
    """Escape changes nothing; after a yes the model is gone, and the space is shown."""
    page = visit.open(explorer.model("org/mine", own.name))
    page.get_by_role("button", name="Delete this model").press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Delete org/mine")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert "org/mine" == own.model("org/mine")["model"]
    page.get_by_role("button", name="Delete this model").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
    page.wait_for_url(f"**/spaces/{own.name}")
    assert 404 == explorer.http.get(own.path("models", "org/mine")).status_code
