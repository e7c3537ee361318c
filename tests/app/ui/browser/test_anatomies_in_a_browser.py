"""The pages of anatomies: walked by keyboard, and taken along."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.app.ui.conftest import Explorer
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
    """From a base to its derivative, and from there to the copy in eight bits."""
    page = visit.open(explorer.address("/family?of=acme/base"))
    for name in ("acme/tuned", "acme/tuned-8bit"):
        page.locator(f'#tree a[aria-label="{name}"]').focus()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text(f"Family of {name}")
    assert "acme/base" in page.locator("#tree").inner_html()
