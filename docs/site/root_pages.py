"""Pages that lie at the repository's root: the tour is the README's, the changelog is a page.

A hook of MkDocs. It also turns links that leave ``docs/`` into links to these pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
_LINKS = {
    "docs/": "",
    "../CHANGELOG.md": "changelog.md",
    "../README.md#five-minutes": "tour.md",
    "../README.md": "index.md",
    "README.md#documentation": "index.md",
}
"""How links begin that leave ``docs/`` or come from outside, and how they begin in the site."""
_TOUR = re.compile(r"^## Five minutes\n(.*?)(?=^## Documentation)", re.DOTALL | re.MULTILINE)
_NO_RUN = re.compile(r"^```(\w+) no-run$", re.MULTILINE)
"""A mark for the tests, which the highlighter would show."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tour = _TOUR.search(readme)
    assert tour is not None, "README.md has a section of five minutes, then its documentation"
    pages = {
        "tour.md": "# Five minutes\n" + tour[1],
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link these pages; show sources as text, and code without marks for the tests."""
    for begin, inside in _LINKS.items():
        markdown = markdown.replace(f"]({begin}", f"]({inside}")
    if not page.file.generated_by:
        markdown = _source(page.file.src_uri).sub(r"\1", markdown)
    return _NO_RUN.sub(r"```\1", markdown)


def _source(page: str) -> re.Pattern[str]:
    """A link from a page to a source file, which the site does not have."""
    outside = re.escape("../" * (1 + page.count("/")))
    return re.compile(rf"\[([^\]]+)\]\({outside}[^)]*\)")
