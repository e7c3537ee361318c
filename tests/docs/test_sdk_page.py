"""The page of the client runs line by line and prints what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks, run_python
from tests.support.servers.server_process import Server

PAGE = Path(__file__).parents[2] / "docs" / "sdk.md"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A service with nothing in it yet, as the reader's."""
    running = Server(tmp_path).start()
    yield running
    assert running.stop() == 0


@pytest.mark.long
@pytest.mark.slow
def test_the_page(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every Python block prints exactly the text block that follows it."""
    monkeypatch.setenv("MODELKIN_URL", server.url)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    printed: list[str] = []
    promised: list[str] = []
    for kind, text in blocks(PAGE.read_text()):
        if kind == "python":
            printed.append(run_python(text, str(PAGE), namespace))
        else:
            promised.append(text)
    assert promised == printed
    assert 24 == len(printed)
