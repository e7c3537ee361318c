"""Links between the pages, and from the pages into the repository, lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from studies.papers.quotations import anchor
from tests.docs.pages import prose

ROOT = Path(__file__).parents[2]
SUMMARIES = ("benchmarks", "evidence")
"""Pages that have a folder of the tables behind them."""
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
TABLES = [page for name in SUMMARIES for page in sorted((ROOT / "docs" / name).glob("*.md"))]
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "changes/README.md")
    ),
    *sorted((ROOT / "docs").glob("*.md")),
    *DECISIONS,
    *TABLES,
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of all headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page.read_text()), flags=re.MULTILINE)
    return {anchor(heading) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """Relative links name a file or folder, and a heading of it if they have an anchor."""
    for link in LINK.findall(prose(page.read_text())):
        if "://" in link:
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if fragment:
            assert fragment in anchors(target), link


def test_every_page_is_in_the_index() -> None:
    """It links each page of docs/, and the README links the index."""
    index = ROOT / "docs" / "index.md"
    linked = {link.partition("#")[0] for link in LINK.findall(index.read_text())}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {index.name} <= linked
    assert "docs/index.md" in LINK.findall((ROOT / "README.md").read_text())


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_page_of_tables_is_in_its_summary(name: str) -> None:
    """The summary links each page of its folder, and each of these links the summary."""
    folder = ROOT / "docs" / name
    summary = folder.with_suffix(".md").read_text()
    linked = {link.partition("#")[0] for link in LINK.findall(summary)}
    pages = [page for page in TABLES if page.parent == folder]
    assert {f"{name}/{page.name}" for page in pages} <= linked
    assert all(f"](../{name}.md" in page.read_text() for page in pages)


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_is_read_in_minutes(name: str) -> None:
    """It has at most 1,300 words, links and marks included."""
    assert len((ROOT / "docs" / f"{name}.md").read_text().split()) <= 1300


def test_every_decision_is_in_its_index() -> None:
    """In the order of their numbers, no two of which are the same."""
    index, *records = reversed(DECISIONS)
    records.reverse()
    linked = re.findall(r"\[(\d{4})\]\((\1-[a-z0-9-]+\.md)\)", index.read_text())
    assert [(record.name[:4], record.name) for record in records] == linked
    assert len({number for number, _ in linked}) == len(linked)
