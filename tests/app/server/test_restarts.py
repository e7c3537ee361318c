"""Ends and renewals of processes: what clients and load balancers see of them."""

from __future__ import annotations

import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from app.settings import Settings
from tests.soak.freshness import answering
from tests.soak.restarts import Callers, renew
from tests.support.app.harness import open_app
from tests.support.backends import SQLITE
from tests.support.http_space import assert_problem
from tests.support.servers.scraped_metrics import answers_of, parsed, processes_in, scraped
from tests.support.servers.server_process import ROOT, Server
from tests.support.servers.waiting import eventually, wait_for

AT_ONCE_S = 120.0
"""More than an end without a drain takes on a busy machine, and less than the drains here."""
HANG_UP = """
import os, pty, signal, time
from app.server.terminal import Terminal
begun, begins = os.pipe()
child, terminal = pty.fork()
if child == 0:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    mine = Terminal()
    os.write(begins, b"closed" if mine.closed else b"open")
    while not mine.closed:
        time.sleep(0.01)
    os._exit(7)
print(os.read(begun, 100).decode())
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(Terminal().closed)
"""

Run = Callable[..., Server]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service of two processes, which tests may renew."""
    server = Server(tmp_path_factory.mktemp("pair"), "--processes=2", "--drain-seconds=1").start()
    yield server
    assert 0 == server.stop()
    assert "Traceback" not in server.log.read_text()


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def families(text: str) -> set[str]:
    """The names of all metrics of a scrape, also of those without a value so far."""
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


@pytest.mark.slow
def test_a_scrape_sums_over_the_processes(pair: Server, tmp_path: Path) -> None:
    """Whichever answers. A service of one process has metrics of the same names."""
    clients: dict[int, httpx.Client] = {}
    with ExitStack() as stack:
        while len(clients) < 2:
            client = stack.enter_context(httpx.Client(base_url=pair.url, trust_env=False))
            clients.setdefault(answering(client, pair), client)

        def sums() -> None:
            texts = [client.get("/metrics").text for client in clients.values()]
            first, second = map(parsed, texts)
            assert [set(clients)] * 2 == [processes_in(each) for each in (first, second)]
            assert answers_of(first, "/livez") == answers_of(second, "/livez") >= 2
            assert [1.0] * 2 == [
                each["modelkin_requests_in_flight"][()] for each in (first, second)
            ]
            own = sum(resident(pid) for pid in clients)
            assert own / 2 < second["process_resident_memory_bytes"][()] < 2 * own

        eventually(sums)  # answers are counted behind their ends, and memory every two seconds
        shared = clients.popitem()[1].get("/metrics").text
    with open_app(tmp_path, SQLITE) as app:
        app.http.get("/livez")
        alone = app.http.get("/metrics").text
    assert {name for name in parsed(alone) if not name.endswith("_created")} <= set(parsed(shared))
    assert families(shared) <= families(alone)


@pytest.mark.long
@pytest.mark.slow
def test_no_call_fails_while_processes_are_renewed(pair: Server) -> None:
    """SIGHUP replaces both processes by interpreters of their own, under load without retries, and
    no answer of the old ones is missing from the metrics.

    ``python -m tests.soak.restarts`` renews 50.
    """
    callers = Callers(pair.url, clients=2, pause=0.1)
    old = processes_in(scraped(pair.url))
    with callers.running():
        renew(pair, 2)
    assert [] == callers.failed
    assert callers.done.total() > 20
    route = "/v1/spaces/{space}/neighbors"
    asked = callers.done["neighbors"]
    wait_for(lambda: answers_of(scraped(pair.url), route) >= asked)  # counted behind their ends
    assert answers_of(now := scraped(pair.url), route) == asked
    assert not old & processes_in(now)


@pytest.mark.slow
def test_a_drain_says_so_and_answers(run: Run) -> None:
    """After SIGTERM ``/readyz`` is a 503 ``stopping``; other requests, also of new connections, are
    answered, each with the word that its connection ends. A second signal ends the drain.
    """
    server = run("--drain-seconds=300")
    with httpx.Client(base_url=server.url, trust_env=False) as kept:
        assert "connection" not in kept.get("/livez").headers
        server.terminate()
        wait_for(lambda: not kept.get("/readyz").is_success)
        ready = kept.get("/readyz")
    assert_problem(ready, 503, "stopping")
    assert "1" == ready.headers["retry-after"]
    listed = httpx.get(f"{server.url}/v1/spaces", trust_env=False)
    assert (200, "close") == (listed.status_code, listed.headers["connection"])
    server.terminate()
    assert 0 == server.process.wait(AT_ONCE_S)


@pytest.mark.slow
def test_ctrl_c_ends_at_once(run: Run) -> None:
    """A person does not wait for a drain."""
    server = run("--drain-seconds=300")
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
