"""A space's map in a browser: drawn by a button, coloured, moved, searched, shared, taken along."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

import modelkin
from tests.app.ui.conftest import Explorer, M
from tests.support.http_space import Space, family
from tests.support.servers.browser import Visit

pytestmark = pytest.mark.browser


def opened(visit: Visit, explorer: Explorer, query: str = "", space: str | None = None) -> Page:
    """The page of a map, once it is drawn."""
    path = f"/spaces/{space or explorer.models.name}/map{query}"
    page = visit.open(explorer.address(path))
    complete(page)
    return page


def complete(page: Page) -> None:
    """Wait until everything of the page is there."""
    page.locator("#map-page[data-complete]").wait_for()


def group(page: Page, name: str) -> Locator:
    """The entry of the legend for a group."""
    return page.locator(f'#map-legend button:has(span:first-of-type:text-is("{name}"))')


def listed(page: Page) -> dict[str, str]:
    """The models that the page lists as seen, and their groups."""
    rows = page.locator("#in-view tbody tr").all()
    return {row.locator("th").inner_text(): row.locator("td").inner_text() for row in rows}


def colors(page: Page) -> set[str]:
    """The colours that the canvas shows at the places of models, once what is due is drawn."""
    return set(
        page.evaluate(
            """async () => {
              const frame = () => new Promise(requestAnimationFrame);
              await frame();
              await frame();
              const canvas = document.getElementById("map");
              const context = canvas.getContext("2d");
              const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
              const counts = {};
              for (let at = 0; at < data.length; at += 4) {
                const color = `${data[at]} ${data[at + 1]} ${data[at + 2]}`;
                counts[color] = (counts[color] ?? 0) + 1;
              }
              return Object.keys(counts).filter((color) => counts[color] > 20);
            }"""
        )
    )


def test_a_button_draws_the_map(explorer: Explorer, visit: Visit) -> None:
    """A page without a map leads to one, and one with an old map says how old it is."""
    space = Space(explorer.http, M)
    supports = family(3, M, 300, 6)
    space.put_all(supports)
    page = visit.open(explorer.address(f"/spaces/{space.name}/map"))
    page.get_by_role("button", name="Draw the map").click()
    complete(page)
    assert set(supports) == set(listed(page))
    with modelkin.Client(str(explorer.http.base_url)) as client:
        client.clusterings.create(space.name, "agglomerative", timeout=60, n_clusters=2)
    space.put("late", supports["m000"])
    page.reload()
    expect(page.locator("#map-facts")).to_contain_text("1 model is newer than the map")
    page.get_by_role("button", name="Draw it again").click()
    expect(page.locator("#map-facts")).to_contain_text("7 models")
    expect(page.locator("#map-facts")).not_to_contain_text("newer")
    complete(page)
    assert "newer than the clustering" == listed(page)["late"]
    group(page, "newer than the clustering").click()
    expect(page.locator("#in-view tbody tr")).to_have_count(len(supports))


def test_colours_are_chosen_and_shared(explorer: Explorer, visit: Visit) -> None:
    """By cluster at first; another choice goes into the address, which brings it back."""
    page = opened(visit, explorer)
    assert "cluster" == page.locator("#map-color").input_value()
    page.locator("#map-color").select_option("attribute:digit")
    expect(group(page, "3")).to_be_visible()
    models = explorer.http.get(explorer.models.path("models")).json()["items"]
    digits = {each["model"]: str(each["attributes"].get("digit", "in no group")) for each in models}
    assert digits == listed(page)
    page.goto(page.url)
    complete(page)
    assert "attribute:digit" == page.locator("#map-color").input_value()
    assert digits == listed(page)
    assert len(colors(page)) >= 5


def test_a_group_is_hidden_by_its_legend(explorer: Explorer, visit: Visit) -> None:
    """It leaves the canvas and the list, the address says so, and a second press shows it."""
    page = opened(visit, explorer, "?color=attribute:digit")
    before, seen = colors(page), listed(page)
    group(page, "1").click()
    expect(group(page, "1")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#in-view tbody tr")).to_have_count(sum(d != "1" for d in seen.values()))
    assert len(colors(page)) < len(before)
    page.wait_for_url("**hide=1**")
    page.reload()
    complete(page)
    expect(group(page, "1")).to_have_attribute("aria-pressed", "false")
    group(page, "1").click()
    expect(page.locator("#in-view tbody tr")).to_have_count(len(seen))


def test_a_resize_shows_no_empty_canvas(explorer: Explorer, visit: Visit) -> None:
    """A canvas of another size is empty, and is drawn again in the same frame."""
    page = opened(visit, explorer)
    before = colors(page)
    page.evaluate(
        "requestAnimationFrame(() => (document.getElementById('map').style.height = '300px'))"
    )
    assert before == colors(page)


def test_a_keyboard_moves_finds_and_opens(explorer: Explorer, visit: Visit) -> None:
    """Keys zoom and move, a search marks a model, Enter on the map opens it."""
    page = opened(visit, explorer)
    canvas = page.locator("#map")
    canvas.focus()
    for key in ("+", "+", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    page.wait_for_url("**zoom=1.96**")
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile("zoom"))
    page.locator("#map-search").focus()
    page.keyboard.type("M003")
    expect(page.get_by_role("option", name="org0/m003")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.locator("#announcer")).to_contain_text("org0/m003 is in the middle of the map")
    page.wait_for_url("**model=org0%2Fm003**")
    assert "org0/m003" == next(iter(listed(page)))
    canvas.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(explorer.model("org0/m003"))


def test_an_address_brings_back_what_was_seen(explorer: Explorer, visit: Visit) -> None:
    """The wheel zooms where the pointer is; the address shows another visitor the same models."""
    page = opened(visit, explorer)
    everything = listed(page)
    box = page.locator("#map").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2 + 40, box["y"] + box["height"] / 2 + 20)
    for _ in range(6):
        page.mouse.wheel(0, -200)
    page.wait_for_url("**zoom=**")
    expect(page.locator("#in-view tbody tr")).not_to_have_count(len(everything))
    page.wait_for_timeout(300)  # the list and the address come to rest
    seen = listed(page)
    page.goto(page.url)
    complete(page)
    assert seen == listed(page)


def test_a_model_is_named_and_opened_by_the_pointer(explorer: Explorer, visit: Visit) -> None:
    """What the pointer is on has its name beside it, and a click opens its page."""
    page = opened(visit, explorer, "?model=org1/m001")
    page.locator("#map-search").fill("org1/m001")
    page.keyboard.press("Enter")
    box = page.locator("#map").bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    expect(page.locator("#map-tip")).to_contain_text("org1/m001")
    page.mouse.click(*middle)
    page.wait_for_url(explorer.model("org1/m001"))


def test_a_map_is_taken_along(explorer: Explorer, visit: Visit, tmp_path: Path) -> None:
    """The CSV has all places and groups, the PNG a picture, the GraphML the edges."""
    page = opened(visit, explorer, "?color=attribute:digit")
    files = {}
    for kind in ("CSV", "PNG", "GraphML"):
        with page.expect_download() as download:
            page.get_by_role("button", name=kind).click()
        files[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(files[kind])
    assert f"{explorer.models.name}-map.csv" == files["CSV"].name
    rows = list(csv.DictReader(io.StringIO(files["CSV"].read_text(encoding="utf-8-sig"))))
    drawn = explorer.http.get(explorer.models.path("maps/latest")).json()
    assert drawn["models"] == [row["model"] for row in rows]
    assert drawn["x"] == pytest.approx([float(row["x"]) for row in rows])
    assert {"0", "1", "2", "3", "in no group"} == {row["attribute:digit"] for row in rows}
    assert files["PNG"].read_bytes().startswith(b"\x89PNG")
    assert "<graphml" in files["GraphML"].read_text()
