"""The documentation as a site: it builds without a warning, and its links to the glossary fit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from docs.site import glossary_links, weight
from tests.support.servers.browser import opened_browser, opened_tab

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MOST_BYTES = 8_000_000
ASKED = {
    "how do I delete a model": "cli.html",
    "how do I find duplicates": "cli.html",
    "rotate an api key": "keys.html",
    "is my data private": "privacy.html",
    "ignore a finding": "audit.html",
    "upgrade to a new version": "upgrading.html",
    "what does mismatch mean": "audit.html",
    "webhook signature": "webhooks.html",
    "memory": "capacity.html",
    "GGUF": "files.html",
    "docker compose": "recipes.html",
    "can I use my own loss": "method.html",
}
"""Questions that people type, and the page that answers each."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a missing page, anchor or docstring would have stopped it."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.long
def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures are files of the site: it works offline."""
    source = r'<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//'
    loading = re.compile(source + r'|<link[^>]*href="https?:')
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert not [page.name for page in pages if loading.search(page.read_text(encoding="utf-8"))]


def test_the_reference_covers_every_public_name(site: Path) -> None:
    """Each name of ``modelkin.__all__`` has an entry, and each operation of the API a section."""
    import modelkin

    entries = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    missing = [name for name in modelkin.__all__ if f".{name}" not in entries]
    assert not set(missing) - {"__version__"}
    assert 'id="get_neighbors"' in entries


def test_the_search_finds_answers_and_no_tables(site: Path) -> None:
    """Evidence, benchmarks, decisions and the changelog are pages, and not in the index."""
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    left_out = {str(page.relative_to(site)) for page in site.rglob("*.html")} - found
    folders = {"evidence/", "benchmarks/", "decisions/"}
    alone = {"benchmarks.html", "changelog.html", "curl.html", "404.html"}
    assert alone == {page for page in left_out if not page.startswith(tuple(folders))}
    assert folders == {f"{page.partition('/')[0]}/" for page in left_out - alone}
    assert {"index.html", "evidence.html", "watching.html", "reference/http.html"} <= found


@pytest.mark.browser
def test_questions_lead_to_their_pages(site: Path) -> None:
    """Typed as people ask: words such as "a" and "to" count for nothing."""
    handler = partial(_Quiet, directory=str(site))
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        opened_browser() as browser,
        opened_tab(browser, viewport={"width": 1400, "height": 900}) as page,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for question, expected in ASKED.items():
            page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
            page.locator(".md-search__input").click()
            page.keyboard.type(question)
            first = page.locator(".md-search-result__item > a").first
            expect(first).to_have_attribute("href", re.compile(rf"/{re.escape(expected)}\b"))
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    """A server of files that logs nothing."""

    def log_message(self, *args: Any) -> None:
        del args


def test_a_site_is_small(site: Path) -> None:
    """So that it is opened from a stick or a share; what no page asks for is left out."""
    files = [file for file in site.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES
    assert not [file.name for file in files if file.suffix in {".map", ".pyc"}]


def test_what_is_written_in_fewer_bytes_says_the_same() -> None:
    """Blanks stay where they have a meaning; marks of the highlighter that matter do, too."""
    page = (
        '<p>\n   a\n</p>\n\n<pre>\n  <span class="n">x</span> <span class="k">in</span>\n</pre>\n'
    )
    page += '<code><span title="m.f">f</span><a class="autorefs" title="m.g" href="#g">g</a></code>'
    lean = '<p>\na\n</p>\n<pre>\n  x <span class="k">in</span>\n</pre>\n'
    lean += '<code>f<a class="autorefs" href="#g">g</a></code>'
    assert lean == weight.lean(page)


def test_terms_of_the_glossary_are_linked_once() -> None:
    """The first occurrence in the text is linked; code, headings and links are left alone."""
    text = "`support` [a support](x.md) A support, and supports."
    page = f"# Support\n\n{text}\n\n```\nsupport\n```\n"
    wanted = page.replace("A support,", "A [support](glossary.md#support),")
    assert wanted == glossary_links.linked(page)


def test_every_term_has_an_anchor_of_its_own() -> None:
    """Two entries never share an anchor, so a link leads to its own term."""
    entries = glossary_links.entries()
    anchors = [glossary_links.anchor(entry) for entry in entries]
    assert len(entries) > 40
    assert len(set(anchors)) == len(anchors)
