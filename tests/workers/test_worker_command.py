"""Starting a worker: what keeps it from working is one line, and the exit code says so."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.server import server
from app.setting_messages import dbos_leftovers
from app.settings import Settings
from tests.support.backends import SQLITE
from tests.support.servers import forkserver
from tests.support.servers.server_process import environment
from workers.__main__ import run
from workers.worker import Worker

LEFT = "the file {file}, the variable DBOS_SYSTEM_DATABASE_URL, the variable DBOS__APPID can go"
NOWHERE = (
    "--database-url=postgresql+psycopg://nobody@127.0.0.1:1/x",
    "--database-timeout-seconds=1",
)
"""A server that is not there."""


def worker(*flags: str, **settings: str) -> tuple[int, str]:
    """The exit code of a worker with all its modules, and what it says."""
    done = forkserver.run("workers", *flags, env=environment(**settings))
    return done.returncode, done.stderr


def test_without_a_database_a_worker_ends() -> None:
    """A server that is not there is named in one line."""
    code, says = worker(*NOWHERE)
    assert (1, 1) == (code, len(says.splitlines()))
    assert "cannot connect to" in says


def test_an_unknown_variable_is_a_warning() -> None:
    """It is named before anything else happens, with the setting that it may stand for."""
    _, says = worker(*NOWHERE, MODELKIN_JOB_LEASE="60")
    warning, _ = says.splitlines()
    assert warning.endswith("is ignored; did you mean MODELKIN_JOB_LEASE_SECONDS?")


def test_a_wrong_setting_is_named() -> None:
    """Exit code 2, and the flag."""
    code, says = worker("--job-lease-seconds=0")
    assert 2 == code
    assert says.startswith("modelkin: --job-lease-seconds: ")


class Signalled:
    """Stands for a worker to whose process these signals come, one at a time."""

    failure = None

    def __init__(self, *signals: signal.Signals) -> None:
        self.left = list(signals)
        self.stopped = False

    def start(self) -> None:
        """It waits."""

    def wait(self, _: float) -> bool:
        """The next signal comes; whether the worker ends by itself."""
        os.kill(os.getpid(), self.left.pop(0))
        return False

    def stop(self) -> None:
        """It ends."""
        self.stopped = True


@pytest.fixture
def kept_handlers() -> Iterator[None]:
    """No signal ends this process, and its handlers are as before afterwards."""
    numbers = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
    before = {each: signal.signal(each, lambda *_: None) for each in numbers}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("kept_handlers")
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_a_worker(stop: signal.Signals) -> None:
    """It puts its jobs back; a signal that killed it would hold them up for its lease."""
    worker: Any = Signalled(stop)
    run(worker)
    assert worker.stopped


@pytest.mark.usefixtures("kept_handlers")
def test_a_worker_under_nohup_outlives_its_terminal() -> None:
    """SIGHUP is ignored there, and stays so."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    worker: Any = Signalled(signal.SIGHUP, signal.SIGTERM)
    run(worker)
    assert [] == worker.left


def worker_of(**settings: Any) -> Worker | None:
    """The worker of a service with these settings; it is not started."""
    nothing: Any = None
    return server.embedded_worker(Settings(**settings), nothing, nothing)


@pytest.mark.parametrize(
    ("names", "file", "expected"),
    [
        ([], False, []),
        (["MODELKIN_PORT", "DBOSS"], False, []),
        ([], True, ["the file {file} can go"]),
        (["PATH", "DBOS_SYSTEM_DATABASE_URL", "DBOS__APPID"], True, [LEFT]),
    ],
)
def test_what_is_left_of_DBOS_is_one_line(
    tmp_path: Path, names: list[str], file: bool, expected: list[str]
) -> None:
    """A file beside the database and variables are named together, and nothing is said of none."""
    old = tmp_path / "m.jobs.db"
    if file:
        old.touch()
    settings = Settings(database_url=SQLITE.url(tmp_path))
    said = dbos_leftovers(settings, names)
    saying = "jobs need no DBOS any more, and all jobs are kept: "
    assert [saying + each.format(file=old) for each in expected] == said


def test_Postgres_has_no_file_of_DBOS() -> None:
    """Its tables were in the database itself."""
    settings = Settings(database_url="postgresql+psycopg://h/m")
    assert [] == dbos_leftovers(settings, [])


@pytest.mark.parametrize(
    ("url", "embedded", "expected"),
    [
        ("sqlite:///x/m.db", "auto", True),
        ("sqlite:///x/m.db", "off", False),
        ("postgresql+psycopg://h/m", "auto", False),
        ("postgresql+psycopg://h/m", "on", True),
    ],
)
def test_who_works_by_default(url: str, embedded: str, expected: bool) -> None:
    """A service on SQLite does, one on Postgres does not, and a setting changes either."""
    settings = Settings(database_url=url, embedded_worker=embedded)
    assert expected == settings.runs_embedded_worker
    assert expected == (worker_of(database_url=url, embedded_worker=embedded) is not None)
