"""The page of a graph: it grows by pointer, by keyboard and by its list, and is taken along."""

from __future__ import annotations

import contextlib
import csv
import io
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from modelkin._graphml import graphml
from tests.app.ui.conftest import HOSTILE_NAMES, Explorer, M
from tests.support.explorer.keyboard import tab_to
from tests.support.http_space import Space, ok, random_support, related
from tests.support.servers.browser import Visit, visiting

pytestmark = pytest.mark.browser

FIRST = "org0/m000"


def opened(explorer: Explorer, visit: Visit, query: str = "&k=3") -> Page:
    """The graph of the first model."""
    page = visit.open(explorer.address(f"/spaces/{explorer.models.name}/graph?of={FIRST}{query}"))
    node(page, FIRST).wait_for()
    return page


def node(page: Page, name: str) -> Locator:
    """A model in the picture."""
    return page.locator(f'#graph .node[data-id="{name}"]')


def nodes(page: Page) -> set[str]:
    """The models in the picture."""
    found = page.locator("#graph .node").evaluate_all("all => all.map(each => each.dataset.id)")
    return set(found)


def near(explorer: Explorer, *names: str) -> set[str]:
    """Models with their three nearest, as the API has them."""
    items = (explorer.models.neighbors(name, k=3)["items"] for name in names)
    return {*names, *(item["model"] for found in items for item in found)}


def asked(page: Page, name: str) -> list[str]:
    """The values of a name in the address."""
    return [value for key, value in parse_qsl(urlsplit(page.url).query) if key == name]


def test_a_click_expands_a_model(explorer: Explorer, visit: Visit) -> None:
    """Its nearest come in; the address holds it, so a reload shows the same, and Back undoes it."""
    page = opened(explorer, visit)
    assert near(explorer, FIRST) == nodes(page)
    other = sorted(nodes(page) - {FIRST})[0]
    node(page, other).locator("circle").last.click()
    expect(page.locator("#announcer")).to_contain_text(f"{other} expanded")
    assert near(explorer, FIRST, other) == nodes(page)
    assert [FIRST, other] == asked(page, "of")
    page.reload()
    node(page, other).wait_for()
    assert near(explorer, FIRST, other) == nodes(page)
    opened(explorer, visit)
    page.get_by_role("link", name=f"Expand {other}").first.click()
    expect(page.locator("#graph .expanded")).to_have_count(2)
    page.go_back()
    expect(page.locator("#graph .expanded")).to_have_count(1)
    assert near(explorer, FIRST) == nodes(page)


def test_a_keyboard_moves_expands_and_removes(explorer: Explorer, visit: Visit) -> None:
    """Arrows reach another model, Enter expands it, Delete removes it, and the first one stays."""
    page = opened(explorer, visit)
    tab_to(page, node(page, FIRST).get_attribute("aria-label") or "")
    page.keyboard.press("Delete")
    expect(page.locator("#announcer")).to_have_text("The first model stays")
    start = nodes(page)
    for key in ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
        reached = page.evaluate("document.activeElement.dataset.id")
        if reached != FIRST:
            break
    assert reached in start - {FIRST}
    expect(page.locator("#node h2")).to_have_text(reached)
    page.keyboard.press("Enter")
    expect(page.locator("#graph .expanded")).to_have_count(2)
    assert reached == page.evaluate("document.activeElement.dataset.id")
    page.keyboard.press("Delete")
    expect(node(page, reached)).to_have_count(0)
    assert ([FIRST], [reached]) == (asked(page, "of"), asked(page, "without"))
    assert start - {reached} == nodes(page)
    tab_to(page, "Reset")
    page.keyboard.press("Enter")
    expect(node(page, reached)).to_have_count(1)


def test_a_model_is_described(explorer: Explorer, visit: Visit) -> None:
    """Its similarities lead to the pairs, and its lineage is what the API answers."""
    page = opened(explorer, visit)
    [best, *_] = explorer.models.neighbors(FIRST, k=3)["items"]
    expect(page.locator("#node dt").first).to_have_text(f"S = {best['similarity']:.3f}")
    page.locator("#node").get_by_role("button", name="Lineage").press("Enter")
    query = {"model": FIRST}
    lineage = explorer.http.get(explorer.models.path("lineage"), params=query).json()
    expect(page.locator("#node [role=status]")).to_contain_text(lineage["summary"])


def test_a_false_declaration_is_drawn(explorer: Explorer, visit: Visit) -> None:
    """To the base that it names, though that is far from it; and marked, also where it is told."""
    space = Space(explorer.http, M)
    rng = np.random.default_rng(8)
    kin = random_support(rng, M, 500)
    space.put_all({f"other-{n}": random_support(rng, M, 500) for n in range(9)})
    space.put_all({name: related(rng, kin, 0.9) for name in ("a", "b", "c", "false", "true")})
    for name, base in (("false", "other-3"), ("true", "a")):
        ok(explorer.http.patch(space.path("models", name), json={"base_model": base}))
    ok(explorer.http.get(space.path("lineages")))
    page = visit.open(explorer.address(f"/spaces/{space.name}/graph?of=false&of=true&k=2"))
    node(page, "other-3").wait_for()
    wrong, right = page.locator("#graph .base.contradicted"), page.locator("#graph .base")
    assert ["false declares other-3 as its base, which is contradicted"] == (
        wrong.locator("title").all_text_contents()
    )
    assert "true declares a as its base" in right.locator("title").all_text_contents()
    expect(page.locator("#node dd", has_text="other-3")).to_contain_text("contradicted")


def test_zoom_keeps_the_models(explorer: Explorer, visit: Visit) -> None:
    """Zooming in shows less of the plane, and *Show all* shows it again."""
    page = opened(explorer, visit)
    whole = page.locator("#graph").get_attribute("viewBox")
    page.get_by_role("button", name="Zoom in").press("Enter")
    assert whole != page.locator("#graph").get_attribute("viewBox")
    page.get_by_role("button", name="Show all").press("Enter")
    assert whole == page.locator("#graph").get_attribute("viewBox")


def test_a_graph_is_taken_along(explorer: Explorer, visit: Visit, tmp_path: Path) -> None:
    """The CSV has the edges; the GraphML is that of the Python client; the PNG is a picture."""
    page = opened(explorer, visit)
    files = {}
    for button in ("CSV", "GraphML", "PNG"):
        with page.expect_download() as got:
            page.get_by_role("button", name=button, exact=True).click()
        got.value.save_as(tmp_path / button)
        files[button] = (tmp_path / button).read_bytes()
    rows = list(csv.DictReader(io.StringIO(files["CSV"].decode("utf-8-sig"))))
    items = explorer.models.neighbors(FIRST, k=3)["items"]
    found = {({row["source"], row["target"]} - {FIRST}).pop(): row["similarity"] for row in rows}
    assert {item["model"]: item["similarity"] for item in items} == {
        name: float(value) for name, value in found.items()
    }
    linked = page.evaluate("JSON.parse(document.getElementById('graph-data').textContent)")
    assert _facts(graphml(linked["around"][FIRST])) == _facts(files["GraphML"].decode())
    assert files["PNG"].startswith(b"\x89PNG\r\n\x1a\n")


def _facts(document: str) -> list[tuple[str, ...]]:
    """Elements of GraphML with their attributes and texts, numbers by value, in any order."""
    found = []
    for each in ElementTree.fromstring(document).iter():
        text = (each.text or "").strip()
        with contextlib.suppress(ValueError):
            text = str(float(text))
        # A key's type follows from a value in Python, and from its name in the browser.
        named = (f"{name}={value}" for name, value in each.items() if name != "attr.type")
        found.append((each.tag, *sorted(named), text))
    return sorted(found)


def test_hostile_names_are_names(explorer: Explorer, visit: Visit, tmp_path: Path) -> None:
    """They are drawn, expanded and written as text."""
    space = explorer.hostile.name
    page = visit.open(explorer.address(f"/spaces/{space}/graph?of={HOSTILE_NAMES[0]}"))
    for name in HOSTILE_NAMES:
        expect(node(page, name)).to_have_count(1)
    page.get_by_role("link", name=f"Expand {HOSTILE_NAMES[1]}").first.press("Enter")
    expect(page.locator("#graph .expanded")).to_have_count(2)
    with page.expect_download() as got:
        page.get_by_role("button", name="GraphML").click()
    got.value.save_as(tmp_path / "g")
    ids = {each.get("id") for each in ElementTree.parse(tmp_path / "g").iter()}
    assert set(HOSTILE_NAMES) <= ids


def test_a_graph_grows_without_scripts(explorer: Explorer, browser: Browser) -> None:
    """The list has links that expand and remove; both are addresses."""
    with visiting(browser, java_script_enabled=False) as visit:
        page = visit.open(explorer.address(f"/spaces/{explorer.models.name}/graph?of={FIRST}&k=3"))
        assert 3 == page.locator("#edges tbody tr").count()
        page.get_by_role("link", name="Expand").first.click()
        assert 2 == len(asked(page, "of"))
        assert page.locator("#edges tbody tr").count() > 3
        page.get_by_role("link", name="Remove").last.click()
        assert 1 == len(asked(page, "without"))
        visit.assert_quiet()


def test_a_model_leads_to_its_graph(explorer: Explorer, visit: Visit) -> None:
    """And the tab, which begins by itself, takes another model."""
    page = visit.open(explorer.model(FIRST))
    page.get_by_role("link", name="As a graph").click()
    node(page, FIRST).wait_for()
    page.get_by_role("link", name="Graph", exact=True).last.click()
    page.get_by_label("Begin with another model").fill("org1/m001")
    page.keyboard.press("Enter")
    node(page, "org1/m001").wait_for()
