"""Ends and renewals of processes: what clients and load balancers see of them."""

from __future__ import annotations

import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from app.settings import Settings
from tests.soak.restarts import Callers, renew
from tests.support.http_space import assert_problem
from tests.support.servers.server_process import ROOT, Server

AT_ONCE_S = 10.0
"""More than an end without a drain takes, and less than the drains here."""
HANG_UP = """
import os, pty, signal, sys
from app.server.terminal import Terminal
child, terminal = pty.fork()
if child == 0:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    mine = Terminal()
    print("closed" if mine.closed else "open", flush=True)
    os.close(0), os.close(1)
    while not mine.closed:
        pass
    os._exit(7)
print(os.read(terminal, 100).decode().strip())
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.setsid() if os.getpid() != os.getsid(0) else None
print(Terminal().closed)
"""

Run = Callable[..., Server]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Start a service on SQLite, since restarts have nothing to do with the database."""
    started: list[Server] = []

    def start(*flags: str) -> Server:
        started.append(Server(tmp_path, *flags).start())
        return started[-1]

    yield start
    for server in started:
        if server.process.is_alive():
            server.kill()


def wait_for_count(server: Server, route: str, count: int) -> bool:
    """Whether ``/metrics`` soon shows so many answers of a route, each counted behind its end."""
    sample = re.compile(
        rf'request_seconds_count{{method="GET",route="{re.escape(route)}",status="200"}} (\d+)'
    )
    end = time.monotonic() + AT_ONCE_S
    while time.monotonic() < end:
        found = sample.search(httpx.get(f"{server.url}/metrics", trust_env=False).text)
        if found and int(found[1]) == count:
            return True
    return False


def test_no_call_fails_while_processes_are_renewed(run: Run) -> None:
    """SIGHUP replaces both processes by interpreters of their own, under load without retries.

    ``python -m tests.soak.restarts`` renews 50.
    """
    server = run("--processes=2", "--drain-seconds=1")
    callers = Callers(server.url, clients=2, pause=0.1)
    with callers.running():
        renew(server, 2)
    assert [] == callers.failed
    assert callers.done.total() > 20
    assert wait_for_count(server, "/v1/spaces/{space}/neighbors", callers.done["neighbors"])
    assert 0 == server.stop()
    assert "Traceback" not in server.log.read_text()


def test_a_drain_says_so_and_answers(run: Run) -> None:
    """After SIGTERM ``/readyz`` is a 503 ``stopping``; other requests, also of new connections, are
    answered, each with the word that its connection ends. A second signal ends the drain.
    """
    server = run("--drain-seconds=60")
    with httpx.Client(base_url=server.url, trust_env=False) as kept:
        assert "connection" not in kept.get("/livez").headers
        server.terminate()
        end = time.monotonic() + AT_ONCE_S
        while (ready := kept.get("/readyz")).is_success:
            assert time.monotonic() < end
    assert_problem(ready, 503, "stopping")
    assert "1" == ready.headers["retry-after"]
    listed = httpx.get(f"{server.url}/v1/spaces", trust_env=False)
    assert (200, "close") == (listed.status_code, listed.headers["connection"])
    server.terminate()
    assert 0 == server.process.wait(AT_ONCE_S)


def test_ctrl_c_ends_at_once(run: Run) -> None:
    """A person does not wait for a drain."""
    server = run("--drain-seconds=60")
    server.process.send_signal(signal.SIGINT)
    assert 0 == server.process.wait(AT_ONCE_S)


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        (Settings(), 0.0),
        (Settings(host="0.0.0.0"), 5.0),
        (Settings(processes=2), 5.0),
        (Settings(host="0.0.0.0", drain_seconds=0), 0.0),
        (Settings(drain_seconds=7), 7.0),
    ],
)
def test_a_drain_is_for_those_whom_another_process_serves(
    settings: Settings, seconds: float
) -> None:
    """By default one process that only this machine reaches ends at once."""
    assert seconds == settings.drain


def test_settings_reach_a_process_as_what_was_set() -> None:
    """So that one of a newer version takes its own defaults for the rest."""
    settings = Settings(processes=2, redis_url="redis://r:1", encryption_keys="x" * 32)
    assert settings == pickle.loads(pickle.dumps(settings))
    assert "max_body_bytes" not in settings.__reduce__()[1][0]


def test_a_closed_terminal_is_told_from_none() -> None:
    """SIGHUP of a closed terminal ends a service; without any terminal, it renews its processes."""
    command = [sys.executable, "-c", HANG_UP]
    said = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout
    assert ["open", "7", "False"] == said.split()
