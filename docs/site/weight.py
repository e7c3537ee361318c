"""What a site need not carry: blanks between tags, maps of sources, stemmers of other languages.

A hook of MkDocs. Readers see the same pages and pictures; the folder has half of the bytes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PIL import Image

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_KEPT: Final = re.compile(r"(<(pre|script|style|textarea)\b.*?</\2>)", re.DOTALL)
"""Where blanks have a meaning."""
_BLANKS: Final = re.compile(r"\s*\n\s*")
_PLAIN: Final = re.compile(r'<span class="[nopw]">([^<]*)</span>')
"""Marks of the highlighter on blanks, names, operators and brackets: half of all marks."""
_HOVERED: Final = re.compile(r'<span title="[^"]*">([^<]*)</span>')
_LINKED: Final = re.compile(r'(<a class="autorefs[^>]*?) title="[^"]*"')
"""What a pointer over a name of the reference would repeat: the name, with its module."""
_CODE: Final = re.compile("</?code>")
"""Marks in what is searched, of which a hit shows the text alone."""
_UNUSED: Final = ("**/*.map", "assets/javascripts/lunr/**/*.js", "sitemap.xml*")
"""Sources for a debugger, and what searches in other languages than English."""


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Write a page without what no reader sees."""
    return lean(output)


def lean(page: str) -> str:
    """The same page in fewer bytes."""
    page = _LINKED.sub(r"\1", _HOVERED.sub(r"\1", page))
    parts = _KEPT.split(page)
    between = (_BLANKS.sub("\n", text) for text in parts[::3])
    kept = (_PLAIN.sub(r"\1", text) for text in parts[1::3])
    return "".join(text for pair in zip(between, [*kept, ""], strict=True) for text in pair)


def on_post_build(config: MkDocsConfig) -> None:
    """Leave out files that no page asks for, and write others in fewer bytes."""
    site = Path(config.site_dir)
    for pattern in _UNUSED:
        for file in site.glob(pattern):
            file.unlink()
    index = site / "search" / "search_index.json"
    index.write_text(_CODE.sub("", index.read_text(encoding="utf-8")), encoding="utf-8")
    document = site / "openapi.json"
    shorter = json.dumps(json.loads(document.read_bytes()), separators=(",", ":"))
    document.write_text(shorter, encoding="utf-8")
    for file in site.glob("images/*.png"):
        with Image.open(file) as picture:
            few = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        few.save(file, optimize=True)
