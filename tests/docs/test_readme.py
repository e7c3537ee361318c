"""The README's tour runs line by line and prints what the README says."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.running import Server

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"```(\w+)( no-run)?\n(.*?)```", re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """The tour's blocks: language and content, in order, without those marked no-run."""
    tour = README.read_text().split("## Five minutes")[1]
    return [(kind, text) for kind, skipped, text in BLOCK.findall(tour) if not skipped]


def run_python(source: str, namespace: dict[str, Any]) -> str:
    """What a block prints, its names kept for the next."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, str(README), "exec"), namespace)
    return out.getvalue()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A service with nothing in it yet, as the reader's."""
    running = Server(tmp_path).start()
    yield running
    assert running.stop() == 0


def test_tour(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python and curl block of the tour prints exactly the block that follows it."""
    monkeypatch.setenv("MODELKIN_URL", server.url)
    namespace: dict[str, Any] = {}
    printed = ""
    compared = 0
    for kind, text in blocks():
        if kind == "python":
            printed = run_python(text, namespace)
        elif text.startswith("curl"):
            url = text.split("'")[1].replace("http://127.0.0.1:8000", server.url)
            printed = httpx.get(url, trust_env=False).text
        elif kind in {"text", "json"}:
            assert text.strip() == printed.strip()
            compared += 1
    namespace["client"].close()
    assert compared == 6
