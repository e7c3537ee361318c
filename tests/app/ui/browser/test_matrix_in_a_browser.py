"""The page of a matrix: chosen, cut and read by keyboard, and taken along."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, expect

from modelkin.core.clustering.linkage import average_linkage, cut
from tests.app.ui.conftest import Explorer
from tests.support.explorer.keyboard import tab_to
from tests.support.http_space import Space
from tests.support.servers.browser import Visit

pytestmark = pytest.mark.browser

NAMES = [f"org{place % 3}/m{place:03d}" for place in range(9)]


def similarities(space: Space) -> Any:
    """S of all pairs, as the API answers."""
    answer = space.http.post(space.path("similarity"), json={"models": NAMES})
    return np.array(answer.json()["similarity"])


def groups(page: Page) -> dict[str, str]:
    """The group of each model, as the table has it."""
    rows = page.locator("#groups tbody tr")
    names, numbers = (rows.locator(each).all_inner_texts() for each in ("th", ".group"))
    return dict(zip(names, numbers, strict=True))


def saved(page: Page, button: str, folder: Path) -> list[list[str]]:
    """The rows of a CSV that a button gives."""
    with page.expect_download() as got:
        page.get_by_role("button", name=button, exact=True).click()
    got.value.save_as(folder / "saved.csv")
    return list(csv.reader(io.StringIO((folder / "saved.csv").read_text("utf-8-sig"))))


def opened(explorer: Explorer, visit: Visit) -> Page:
    query = httpx.QueryParams({"models": "\n".join(NAMES)})
    page = visit.open(explorer.address(f"/spaces/{explorer.models.name}/matrix?{query}"))
    page.locator("#matrix image").wait_for()
    return page


def test_a_keyboard_cuts_the_tree(explorer: Explorer, visit: Visit) -> None:
    """The slider cuts into the groups of average linkage, and the address holds the cut."""
    page = opened(explorer, visit)
    tab_to(page, "Cut the tree at S")
    page.keyboard.press("Home")
    expect(page.locator("#cut-says")).to_contain_text("1 group of several models")
    assert {"1"} == set(groups(page).values())
    held = any(by_chance for *_, by_chance in _data(page)["joins"])
    assert held == ("no more than chance" in page.locator("#cut-says").inner_text())
    expect(page.locator("#chance-says")).to_contain_text(f"{_data(page)['chance']:.3f}")
    page.keyboard.press("End")
    expect(page.locator("#cut-says")).to_contain_text("9 alone")
    assert 9 == len(set(groups(page).values()))
    page.keyboard.press("ArrowLeft")
    assert "cut=0.999" in page.url
    distances = 1 - similarities(explorer.models)
    heights = sorted(1 - np.array([join[3] for join in _data(page)["joins"]]))
    between = (heights[3] + heights[4]) / 2  # joins above this are 4, so groups are 5
    tab_to(page, "S at which the tree is cut")
    page.keyboard.press("Control+A")
    page.keyboard.type(f"{between:.3f}")
    found = groups(page)
    labels = dict(zip(NAMES, cut(average_linkage(distances), 5).tolist(), strict=True))
    assert 5 == len(set(found.values()))
    assert 5 == len({(found[name], labels[name]) for name in NAMES})
    page.reload()
    page.locator("#matrix image").wait_for()
    assert found == groups(page)


def _data(page: Page) -> Any:
    return page.evaluate("JSON.parse(document.getElementById('matrix-data').textContent)")


def test_a_keyboard_reads_a_cell(explorer: Explorer, visit: Visit) -> None:
    """Arrow keys name two models and their S to a screen reader; Enter compares the two."""
    page = opened(explorer, visit)
    tab_to(page, "Cells of the matrix")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    a, b = _data(page)["models"][2], _data(page)["models"][1]
    value = similarities(explorer.models)[NAMES.index(a), NAMES.index(b)]
    expect(page.locator("#announcer")).to_have_text(f"{a} and {b}: S = {value:.3f}")
    expect(page.locator("#cell")).to_contain_text(f"S = {value:.3f}")
    page.keyboard.press("Enter")
    page.wait_for_url("**/pairs?*")
    expect(page.locator("h1")).to_contain_text(a)


def test_a_pointer_finds_the_cell_below_it(explorer: Explorer, visit: Visit) -> None:
    """The cell in the last row and the first column is of the last model and the first."""
    page = opened(explorer, visit)
    box = page.locator("#matrix image").bounding_box()
    assert box is not None
    page.locator("#matrix image").scroll_into_view_if_needed()
    page.locator("#cells").hover(position={"x": 5, "y": box["height"] - 8})
    names = _data(page)["models"]
    expect(page.locator("#cell")).to_contain_text(f"{names[-1]} and {names[0]}: S =")


def test_a_matrix_is_taken_along(explorer: Explorer, visit: Visit, tmp_path: Path) -> None:
    """The CSV has the values of the API, and so has the table; the groups have theirs."""
    page = opened(explorer, visit)
    head, *rows = saved(page, "CSV", tmp_path)
    at = [NAMES.index(name) for name in head[1:]]
    values = np.array([row[1:] for row in rows], np.float64)
    assert values == pytest.approx(similarities(explorer.models)[np.ix_(at, at)], abs=1e-4)
    page.get_by_text("All similarities as a table").press("Enter")
    expect(page.locator("#all td").first).to_have_text("1.000")
    assert 81 == page.locator("#all td").count()
    assert groups(page) == {row[0]: row[1] for row in saved(page, "CSV of groups", tmp_path)[1:]}
    with page.expect_download() as got:
        page.get_by_role("button", name="PNG").click()
    got.value.save_as(tmp_path / "matrix.png")
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
