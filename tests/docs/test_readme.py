"""The README's tour runs line by line and prints what the README says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.summary import sections
from modelkin.cli import main
from tests.docs.pages import blocks, run_python
from tests.support.servers.server_process import Server

README = Path(__file__).parents[2] / "README.md"


def tour() -> list[tuple[str, str]]:
    """The tour's blocks: language and content."""
    return blocks(README.read_text().split("## Five minutes")[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A service with nothing in it yet, as the reader's."""
    running = Server(tmp_path).start()
    yield running
    assert running.stop() == 0


def session(text: str) -> str:
    """A console block with what its commands really print, without progress and remarks."""
    commands = [line for line in text.splitlines() if line.startswith("$ modelkin ")]
    said = ""
    for command in commands:
        shown, (ours, _, head) = io.StringIO(), command.partition(" | head -")
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()):
            main(shlex.split(ours)[2:])
        lines = shown.getvalue().splitlines(keepends=True)
        said += "".join([f"{command}\n", *lines[: int(head) if head else None]])
    return said


def test_tour(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block prints exactly what follows it, and the request has one answer."""
    monkeypatch.setenv("MODELKIN_URL", server.url)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    printed = ""
    compared = 0
    for kind, text in tour():
        if kind == "python":
            printed = run_python(text, str(README), namespace)
        elif kind == "console":
            assert text == session(text)
            compared += 1
        elif text.startswith("curl"):
            url = text.split("'")[1].replace("http://127.0.0.1:8000", server.url)
            [nearest] = httpx.get(url, trust_env=False).json()["items"]
            assert "acme/vision-base" == nearest["model"]
            compared += 1
        elif kind == "text":
            assert text == printed
            compared += 1
    namespace["client"].close()
    assert compared == 5


def test_figures_of_an_installation_are_those_that_were_measured() -> None:
    """Megabytes, and the seconds of processors of the first three steps with an empty cache."""
    measured = sections()["installation"].text
    size = re.search(r"megabytes of that environment \| (\d+) MB", measured)
    rows = re.findall(r"^\| (?:python|pip|five lines)\b.*$", measured, re.MULTILINE)[:3]
    busy = [float(row.split(" | ")[2].removesuffix(" s")) for row in rows]
    said = re.search(r"takes some (\d+) MB, and (\d+) s of one core", README.read_text())
    assert size is not None
    assert said is not None
    tens = -(-int(size[1]) // 10)  # packages grow from one month to the next
    assert (f"{tens * 10}", f"{sum(busy):.0f}") == said.groups()
