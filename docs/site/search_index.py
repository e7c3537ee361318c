"""Pages that the search leaves out: evidence, benchmarks, decisions, changelog, all calls.

A hook of MkDocs. Their many figures would stand above the pages that answer a question.
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


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark such a page for the search."""
    if page.file.src_uri.startswith(LEFT_OUT):
        page.meta["search"] = {"exclude": True}
    return markdown
