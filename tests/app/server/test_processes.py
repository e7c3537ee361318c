"""Several processes, one truth: ``--processes``, and services that share a database."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.server.metrics_folder import metrics_folder
from tests.soak.freshness import Checked, processes, services
from tests.support.backends import SQLITE, Backend
from tests.support.faults.ledger import WRITERS, check, make_space
from tests.support.fixtures import Start
from tests.support.servers.scraped_metrics import answers_of, processes_in, scraped
from tests.support.servers.server_process import ROOT, Server, command, environment
from tests.support.servers.waiting import wait_for
from tests.support.write_log import WriteLog, finish, start_writers, wait_for_writes


def serving(log: Path) -> list[int]:
    """The process ids of all server processes so far, oldest first, from a service's log."""
    return [int(pid) for pid in re.findall(r"server process \[(\d+)\]", log.read_text())]


def lives(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def parent_of(pid: int) -> int:
    """The process that it was forked from."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [processes, services])
def test_no_read_is_stale(kind: Callable[..., Any], backend: Backend, tmp_path: Path) -> None:
    """What one process has acknowledged, another one knows: after each of 60 changes, no read
    through the other shows the space as it was before. ``make soak`` makes 10,000.
    """
    with kind(tmp_path, backend) as (first, second):
        checked = Checked(first, second, seed=len(backend.name))
        checked.run(30)
        checked.swap()
        checked.run(60)
    assert [] == checked.stale
    assert {"create", "replace", "tag", "delete"} <= set(checked.done)
    assert checked.answered["lsh"] > 20


@pytest.mark.slow
def test_SIGTERM_ends_all_processes_cleanly(start: Start) -> None:
    """Under load requests are finished everywhere, the exit code is 0, and nothing is lost."""
    server = start("--processes=2")
    space = make_space(server)
    write_logs = [WriteLog() for _ in range(WRITERS)]
    writers = start_writers(server.url, space, write_logs, 11)
    wait_for_writes(write_logs)
    code = server.stop()
    assert ([], 0) == (finish(writers), code)
    assert not any(lives(pid) for pid in serving(server.log))
    assert "Traceback" not in server.log.read_text()
    again = start()  # of one process, which is sooner
    check(again, space, write_logs)
    assert 0 == again.stop()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Server]:
    """A service of two processes, on SQLite: how they are kept has nothing to do with it."""
    server = Server(tmp_path, "--processes=2").start()
    yield server
    server.kill()


@pytest.mark.slow
def test_a_process_that_dies_is_replaced(two: Server) -> None:
    """After a SIGKILL of one process the other answers on, and there are two again. What it had
    counted stays in the metrics, which name it no more.
    """
    space = make_space(two)
    # Each answer is counted behind its end.
    wait_for(lambda: answers_of(scraped(two.url), "/v1/spaces") == 1)
    victim, other = serving(two.log)[:2]
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: len(set(serving(two.log))) == 3)
    assert {200} == {httpx.get(f"{two.url}/v1/spaces/{space}").status_code for _ in range(20)}
    assert lives(other)
    assert f"process {victim} ended with -9" in two.log.read_text()
    assert 1 == answers_of(after := scraped(two.url), "/v1/spaces")
    assert victim not in processes_in(after)
    assert 0 == two.stop()


def metrics_of(pid: int) -> Path:
    """The folder of the metrics that a process shares."""
    found = re.search(r"/\S+/modelkin-metrics-\w+", Path(f"/proc/{pid}/maps").read_text())
    assert found is not None
    return Path(found[0])


def test_no_process_outlives_the_first(two: Server) -> None:
    """A SIGKILL of the process that keeps the others ends them, too: the port is free again. The
    next start deletes the folder of metrics that it left behind, and none that is in use.
    """
    both = serving(two.log)
    assert [True, True] == [lives(pid) for pid in both]
    (metrics,) = set(map(metrics_of, both))
    os.utime(metrics, (0, 0))  # as if it was there for long
    with metrics_folder():
        assert metrics.exists()
    two.kill()
    wait_for(lambda: not any(lives(pid) for pid in both))
    os.utime(metrics, (0, 0))  # a process may have made a file in it meanwhile
    with pytest.raises(httpx.ConnectError):
        httpx.get(two.url, trust_env=False)
    with metrics_folder():
        assert not metrics.exists()


@pytest.mark.slow
def test_a_port_that_is_taken_ends_all_at_once(tmp_path: Path) -> None:
    """The address is named in one line before any process is started, exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = f"--database-url={SQLITE.url(tmp_path)}", f"--port={port}", "--processes=2"
        ended = subprocess.run(
            command(*flags), cwd=ROOT, env=environment(), capture_output=True, text=True
        )
    said = f"modelkin: port {port} of 127.0.0.1 is in use: choose another one with --port, "
    assert (1, f"{said}or --port 0 for any free one\n") == (ended.returncode, ended.stderr)
