"""Links from each page to the glossary, where one of its terms first occurs.

A hook of MkDocs. Code, headings, tables and existing links stay as they are.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

GLOSSARY = Path(__file__).parents[1] / "glossary.md"
_ENTRY = re.compile(r"^- \*\*(.+?)\*\*:", re.MULTILINE)
_UNTOUCHED = re.compile(
    "|".join(
        (
            *(r"^```.*?^```$", r"``.+?``", r"`[^`\n]+`"),  # code
            *(r"^#.*?$", r"^\|.*?$", r"\*\*.+?\*\*", r"<[^>]+>"),  # headings, tables, bold, HTML
            *(r"!?\[[^\]]*\]\([^)]*\)", r"\[[^\]]*\]\[[^\]]*\]", r"^\[.*?\]:.*?$"),  # links
        )
    ),
    re.DOTALL | re.MULTILINE,
)
_UNLINKED = {"glossary.md", "changelog.md"}


def entries() -> list[str]:
    """What the glossary explains, in its order."""
    return _ENTRY.findall(GLOSSARY.read_text(encoding="utf-8"))


@cache
def terms() -> dict[str, str]:
    """The anchor of each term, by its words in lower case."""
    found: dict[str, str] = {}
    for entry in entries():
        for term in re.split(r", | \(.*?\)", entry.lower()):
            if len(term) > 3:
                found[term] = anchor(entry)
    return found


def anchor(entry: str) -> str:
    """The anchor of an entry of the glossary."""
    return re.sub(r"[^a-z0-9]+", "-", entry.lower()).strip("-")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Give the glossary anchors, and other pages links to them."""
    path = page.file.src_uri
    if path == "glossary.md":
        return _ENTRY.sub(
            lambda found: f'- <a id="{anchor(found[1])}"></a>{found[0][2:]}', markdown
        )
    if path in _UNLINKED or "/" in path:  # reference, decisions, tables: for who knows the words
        return markdown
    return linked(markdown)


def linked(markdown: str) -> str:
    """A page with a link at the first occurrence of each term."""
    left = terms().copy()
    words = "|".join(sorted(map(re.escape, left), key=len, reverse=True))
    term = re.compile(rf"\b({words})(s?)\b", re.IGNORECASE)

    def link(found: re.Match[str]) -> str:
        target = left.pop(found[1].lower(), None)
        return found[0] if target is None else f"[{found[0]}](glossary.md#{target})"

    parts, end = [], 0
    for kept in _UNTOUCHED.finditer(markdown):
        parts += [term.sub(link, markdown[end : kept.start()]), kept[0]]
        end = kept.end()
    return "".join([*parts, term.sub(link, markdown[end:])])
