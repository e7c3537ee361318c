"""The page of the command line runs line by line and prints what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.server_process import Server, environment

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BLOCK = re.compile(r"```(python|console)\n(.*?)```", re.DOTALL)
REQUEST_ID = re.compile(r"\[request [^]]+\]")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A service with nothing in it yet, as the reader's."""
    (tmp_path / "service").mkdir()
    running = Server(tmp_path / "service").start()
    yield running
    assert running.stop() == 0


def output(command: str, folder: Path, url: str) -> str:
    """What a terminal shows of a command, without request ids, which are new every time."""
    program, *arguments = shlex.split(command)
    assert program == "modelkin"
    done = subprocess.run(
        [sys.executable, "-m", "modelkin", *arguments],
        cwd=folder,
        env=environment(MODELKIN_URL=url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return REQUEST_ID.sub("[request ...]", done.stdout)


def session(text: str, folder: Path, url: str) -> str:
    """A console block with the outputs that its commands really have."""
    commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{output(command, folder, url)}" for command in commands)


def test_the_page(server: Server, tmp_path: Path) -> None:
    """Every command of the page prints exactly what stands below it."""
    blocks = BLOCK.findall(PAGE.read_text())
    for kind, text in blocks:
        if kind == "python":
            subprocess.run([sys.executable, "-c", text], cwd=tmp_path, check=True)
        else:
            assert text == session(text, tmp_path, server.url)
    assert 7 == len(blocks)
