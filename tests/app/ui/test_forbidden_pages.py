"""Every page as those see it who may not: without a key, of another tenant, and reading alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.app.tenancy.auth.test_keys import new_key
from tests.support.explorer.pages import HOSTILE_NAMES, Explorer, pages_of
from tests.support.servers.server_process import Server

OTHERS = re.compile(r"org\d/m\d|acme/tuned\b|mixer/|hospital-\d|round-1|" + "|".join(HOSTILE_NAMES))
"""The names of the first tenant's models and tags."""


@pytest.fixture(scope="module")
def locked(
    explorer: Explorer, sqlite_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A service on the same data that asks for keys."""
    running = Server(tmp_path_factory.mktemp("locked"), "--auth=required")
    running.database_url, running.blobs = sqlite_server.database_url, sqlite_server.blobs
    yield running.start()
    assert running.stop() == 0


def visiting(locked: Server, key: str | None) -> httpx.Client:
    """A browser that shows a key, or none."""
    headers = {"Accept": "text/html"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    return httpx.Client(base_url=locked.url, trust_env=False, headers=headers, timeout=60)


def main_of(answer: httpx.Response, path: str) -> str:
    """The text of a page, without what its own address says."""
    shown = re.sub(r'value="[^"]*"', "", answer.text.partition("<main")[2])
    for asked in OTHERS.finditer(path):
        shown = shown.replace(asked[0], "")
    return shown


def test_without_a_key_each_page_asks_for_one(explorer: Explorer, locked: Server) -> None:
    """And shows nothing of what is stored."""
    with visiting(locked, None) as visitor:
        for what, path in pages_of(explorer).items():
            answer = visitor.get(path)
            if path == "/words":
                continue
            assert 401 == answer.status_code, what
            assert 'type="password"' in answer.text, what
            assert OTHERS.search(main_of(answer, path)) is None, what


def test_no_page_shows_another_tenants_models(explorer: Explorer, locked: Server) -> None:
    """It is empty, or says that there is no such thing, whatever its address names."""
    key = new_key(locked, "--tenant=stranger", "--scope=read", "--scope=write", "--scope=admin")
    with visiting(locked, key) as visitor:
        for what, path in pages_of(explorer).items():
            answer = visitor.get(path)
            assert answer.status_code in {200, 404}, f"{what}: {answer.status_code}"
            found = OTHERS.search(main_of(answer, path))
            assert found is None, f"{what}: {found}"


def test_a_key_that_reads_sees_no_form_that_writes(explorer: Explorer, locked: Server) -> None:
    """But those of searches, and where it signs out; each page says what it has no right to."""
    with visiting(locked, new_key(locked, "--scope=read")) as visitor:
        for what, path in pages_of(explorer).items():
            answer = visitor.get(path)
            assert answer.status_code in {200, 403, 404, 422}, f"{what}: {answer.status_code}"
            forms = re.findall(r'<form[^>]*method="post"[^>]*action="([^"]*)"', answer.text)
            assert {*forms} <= {"/sign-out"}, f"{what}: {forms}"
