"""Pages of commands run line by line, and print what they say."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modelkin.cli import main
from tests.docs import test_readme as readme
from tests.support.servers.server_process import Server

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = {"audit.md": 6, "cli.md": 31, "heads.md": 9}
"""How many blocks each page has, so that none is overlooked."""
BLOCK = re.compile(r"```(python|console)\n(.*?)```", re.DOTALL)
NEW_EACH_TIME = {
    re.compile(r"\[request [^]]+\]"): "[request ...]",
    re.compile(
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    ): "019a5c1e-7d2b-7f00-8c11-5e0f6a4b9d27",
    re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d"): "2026-01-31 12:00",
    re.compile(r"[0-9,.]+ GB free (in|for) .*"): r"77.5 GB free \1 /home/you",
    re.compile(r"(database +)\S+ is at \d+"): r"\1/home/you/modelkin-data/modelkin.db is at 0040",
    re.compile(r"(secret key +).*"): r"\1/home/you/modelkin-data/secret.key",
    re.compile(r"[0-9]+ jobs? queued; the newest \w+"): "0 jobs queued; the newest succeeded",
    re.compile(r"in [0-9]+ ms"): "in 12 ms",
    re.compile(r"mk_\w{49}"): "mk_" + 49 * "x",
    re.compile(r"mk_\w{8}\b"): "mk_xxxxxxxx",
    re.compile(r"http://127.0.0.1:[0-9]+"): "http://127.0.0.1:8000",
    re.compile(r"(?m)^(secret +)[\w-]{43}$"): r"\1x7Kq2tF9c0mZ4vB1nR8sJ5wLhY6dPaGeUoTiXkQjWyE",
}
"""Ids, times, sizes, places, revisions, secrets and jobs, and what stands for them on the page."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A service with nothing in it yet, as the reader's, and the reader's folder and variables."""
    (tmp_path / "service").mkdir()
    running = Server(tmp_path / "service").start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELKIN_URL", running.url)
    monkeypatch.setenv("MODELKIN_DATABASE_URL", running.database_url)
    yield running
    assert running.stop() == 0


def output(command: str) -> str:
    """What a terminal shows of a command, without what is new every time."""
    program, *arguments = shlex.split(command)
    assert program == "modelkin"
    shown = io.StringIO()
    with (
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(shown),
        contextlib.suppress(SystemExit),  # of a usage error
    ):
        main(arguments)
    text = shown.getvalue()
    for found, stable in NEW_EACH_TIME.items():
        text = found.sub(stable, text)
    return text.replace("`python -m app`", "`modelkin serve`")  # as where it is installed


def session(text: str) -> str:
    """A console block with the outputs that its commands really have."""
    commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{output(command)}" for command in commands)


def carry_out(text: str, session: Callable[[str], str] = session) -> list[str]:
    """Run a page's blocks in order, which print what stands in them; their kinds."""
    blocks = BLOCK.findall(text)
    for kind, content in blocks:
        if kind == "python":
            subprocess.run([sys.executable, "-c", content], check=True)
        else:
            assert content == session(content)
    return [kind for kind, _ in blocks]


@pytest.mark.slow
@pytest.mark.parametrize("page", BLOCKS)
def test_the_page(page: str, server: Server) -> None:
    """Every command of the page prints exactly what stands below it."""
    kinds = carry_out((DOCS / page).read_text())
    assert {"python", "console"} == set(kinds)
    assert len(kinds) == BLOCKS[page]


@pytest.mark.slow
def test_one_after_the_other(server: Server) -> None:
    """Who reads on with the service of the README sees what the pages print, too."""
    hub = readme.README.read_text().partition("### A hub")[2].partition("### A federation")[0]
    assert ["python", "console", "python"] == carry_out(hub, readme.session)
    for page in ("audit.md", "heads.md"):
        carry_out((DOCS / page).read_text())
