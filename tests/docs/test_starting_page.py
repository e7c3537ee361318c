"""The guide of a newcomer's way runs line by line against a service and prints what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.docs.pages import blocks, run_python
from tests.support.servers.server_process import Server

PAGE = Path(__file__).parents[2] / "docs" / "starting.md"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A service that keeps small learngenes, as the guide says."""
    running = Server(tmp_path, MODELKIN_MAX_LEARNGENE_BYTES="1000000").start()
    yield running
    assert running.stop() == 0


@pytest.mark.slow
def test_the_page(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every Python block prints exactly the text block that follows it, if it prints."""
    monkeypatch.setenv("MODELKIN_URL", server.url)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    namespace: dict[str, Any] = {}
    printed: list[str] = []
    promised: list[str] = []
    for kind, text in blocks(PAGE.read_text()):
        if kind == "python":
            printed.append(run_python(text, str(PAGE), namespace))
        else:
            promised.append(text)
    assert promised == [each for each in printed if each]
    assert 4 == len(printed)
