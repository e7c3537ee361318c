"""Rows of attributes, the deletion of a space, and what leads to a model of any space."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from modelkin import Support
from tests.app.ui.conftest import Explorer, M
from tests.support.http_space import Space, ok
from tests.support.servers.browser import Visit

pytestmark = pytest.mark.browser


@pytest.fixture
def own(explorer: Explorer) -> Space:
    """A space that a test may change."""
    space = Space(explorer.http, M)
    space.put("org/mine", Support.from_indices(range(50), M))
    space.put("org/other", Support.from_indices(range(20, 70), M))
    return space


def test_a_keyboard_finds_a_model_of_any_space(explorer: Explorer, visit: Visit) -> None:
    """From the page of jobs, too: each suggestion says its space, and Enter opens the model."""
    page = visit.open(explorer.address("/jobs"))
    page.keyboard.press("/")
    page.keyboard.type("hospital-2")
    expect(page.get_by_role("option", name="hospital-2")).to_contain_text(f"in {explorer.clients}")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(explorer.model("hospital-2", explorer.clients))


def test_angles_are_taken_along_as_a_picture(
    explorer: Explorer, visit: Visit, tmp_path: Path
) -> None:
    """With a bar for all samples and one for each of three classes."""
    path = f"/spaces/{explorer.clients}/pairs?a=hospital-0&b=hospital-1"
    page = visit.open(explorer.address(path))
    with page.expect_download() as got:
        page.locator("[data-png=angles]").click()
    got.value.save_as(tmp_path / "a.png")
    picture = (tmp_path / "a.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert [1440, 248] == [int.from_bytes(picture[at : at + 4]) for at in (16, 20)]
    assert "hospital-0-hospital-1.png" == got.value.suggested_filename


def test_attributes_are_rows_that_keep_their_types(
    explorer: Explorer, visit: Visit, own: Space
) -> None:
    """What is not touched stays to the last digit, and so does what a program changed meanwhile."""
    before = {
        "digit": 7.0,
        "long": 2**60,
        "ready": True,
        "note": "a\nb",
        "deep": {"x": [1]},
        "q": "",
    }
    path = own.path("models", "org/mine")
    ok(explorer.http.patch(path, json={"attributes": before}))
    page = visit.open(explorer.model("org/mine", own.name))
    ok(explorer.http.patch(path, json={"merge_attributes": {"meanwhile": 1}}))
    page.get_by_text("Edit", exact=True).press("Enter")
    page.get_by_role("button", name="Remove q").press("Enter")
    expect(page.get_by_role("button", name="Remove deep")).to_be_focused()
    row = page.get_by_role("group", name="Attribute ready")
    row.get_by_label("Value").select_option("false")
    page.get_by_role("group", name="Attribute deep").get_by_label("Value").fill("[null, 2]")
    for name, kind, value in (("loss", "number", "1e-3"), ("site", "text", "7"), ("", "text", "")):
        page.get_by_role("button", name="Add an attribute").press("Enter")
        page.keyboard.type(name)
        row = page.locator("[data-row]").last
        row.get_by_label("Type").select_option(kind)
        row.get_by_label("Value").fill(value)
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.locator("#metadata-title + dl")).to_contain_text("loss")
    changed = {"ready": False, "deep": [None, 2], "loss": 0.001, "site": "7", "meanwhile": 1}
    kept = {name: before[name] for name in ("digit", "long", "note")}
    stored = own.model("org/mine")["attributes"]
    assert {**kept, **changed} == stored
    assert isinstance(stored["digit"], float)


@pytest.mark.parametrize(
    ("name", "kind", "value", "said"),
    [
        ("n", "number", "seven", "“seven” is not a number"),
        ("n", "number", "9007199254740993", "more digits than a browser keeps"),
        ("n", "json", "{", "this is not JSON"),
        ("n", "json", "null", "remove the attribute"),
        ("", "text", "x", "has no name"),
        ("old", "text", "x", "Two attributes have the name"),
    ],
)
def test_a_value_that_is_none_is_not_sent(
    explorer: Explorer, visit: Visit, own: Space, name: str, kind: str, value: str, said: str
) -> None:
    """The page says which attribute is wrong, and how; the model stays as it was."""
    path = own.path("models", "org/mine")
    ok(explorer.http.patch(path, json={"attributes": {"old": 1}}))
    page = visit.open(explorer.model("org/mine", own.name))
    page.get_by_text("Edit", exact=True).press("Enter")
    page.get_by_role("button", name="Add an attribute").press("Enter")
    page.keyboard.type(name)
    row = page.locator("[data-row]").last
    row.get_by_label("Type").select_option(kind)
    row.get_by_label("Value").fill(value)
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.locator("#edit .outcome")).to_contain_text(said)
    assert {"old": 1} == own.model("org/mine")["attributes"]


def test_a_space_is_deleted_once_its_name_is_typed(
    explorer: Explorer, visit: Visit, own: Space
) -> None:
    """Nothing else goes on, neither Enter nor another name; then the first page is shown."""
    page = visit.open(explorer.address(f"/spaces/{own.name}/about"))
    page.get_by_role("button", name="Delete this space").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Delete {own.name} with its 2 models?")
    assert "typed-name" == page.evaluate("document.activeElement.id")
    act = dialog.get_by_role("button", name="Delete the space")
    for wrong in ("", own.name[:-1], own.name + "x"):
        dialog.get_by_role("textbox").fill(wrong)
        page.keyboard.press("Enter")
        expect(act).to_be_disabled()
    dialog.get_by_role("button", name="Cancel").press("Enter")
    expect(dialog).to_have_count(0)
    assert 200 == explorer.http.get(f"/v1/spaces/{own.name}").status_code
    page.get_by_role("button", name="Delete this space").press("Enter")
    dialog.get_by_role("textbox").fill(own.name)
    page.keyboard.press("Enter")
    page.wait_for_url(explorer.address("/"))
    assert 404 == explorer.http.get(f"/v1/spaces/{own.name}").status_code
