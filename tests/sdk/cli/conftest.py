"""The command as a process of its own, and one service for all of it."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from modelkin.cli import main
from tests.support.servers import forkserver
from tests.support.servers.server_process import Server, environment

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def server(sqlite_server: Server) -> Server:
    """The service that the tests share, each with a space of its own."""
    return sqlite_server


def modelkin(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """The command run in a folder, without a terminal; ``settings`` are environment."""
    return forkserver.run("modelkin", *arguments, folder=folder, env=environment(**settings))


def shown_on_a_terminal(folder: Path, *arguments: str) -> str:
    """What the command shows where its standard error is a terminal; it must succeed.

    A terminal gives its text in parts, and ends with an error once the command has closed it.
    """
    ours, theirs = pty.openpty()
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-m", "modelkin", *arguments], cwd=folder, stderr=theirs
    ) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    assert 0 == process.returncode
    return shown.decode()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the command in an empty folder."""
    return partial(modelkin, tmp_path)


@pytest.fixture
def run_anew(tmp_path: Path) -> Run:
    """The same in a new interpreter, whose path and encoding are those of its environment."""

    def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "modelkin", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env=environment(**settings),
        )

    return run


@pytest.fixture
def run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same within this process, which is sooner; for commands that need no service."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            try:
                code: Any = main(arguments)
            except SystemExit as stopped:  # argparse's way
                code = stopped.code
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), error.getvalue())

    return run


@pytest.fixture
def ask_here(run_here: Run, server: Server) -> Callable[..., str]:
    """The same as ``ask`` within this process, which is sooner."""

    def ask(*arguments: str) -> str:
        done = run_here(*arguments, "--url", server.url)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout

    return ask


@pytest.fixture
def ask(run: Run, server: Server) -> Callable[..., str]:
    """Runs a command that talks to the service and must succeed; what it prints."""

    def ask(*arguments: str) -> str:
        done = run(*arguments, MODELKIN_URL=server.url)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout

    return ask
