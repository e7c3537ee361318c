"""What the search leaves out, and what it ranks behind the pages that answer a question.

A hook of MkDocs. The many figures of evidence and benchmarks would stand above those, and so would
the entries of a reference, each of which has few words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

LEFT_OUT: Final = (
    "evidence/",
    "benchmarks/",
    "benchmarks.md",
    "changelog.md",
    "curl.md",
    "decisions/",
)
"""How their paths begin. ``evidence.md`` stays: it says when to use all this, and when not."""

BEHIND: Final = "reference/"
_WEIGHT: Final = 0.2
"""Of an entry of the reference, beside 1 of a page."""


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark such a page for the search."""
    if page.file.src_uri.startswith(LEFT_OUT):
        page.meta["search"] = {"exclude": True}
    elif page.file.src_uri.startswith(BEHIND):
        page.meta["search"] = {"boost": _WEIGHT}
    return markdown
