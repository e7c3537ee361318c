"""Signals to a service: to its first process, to all of them, under nohup, during a renewal."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from app.server import supervisor
from app.settings import Settings
from tests.app.server.test_processes import lives, parent_of, serving
from tests.soak.restarts import renewals
from tests.support.backends import SQLITE
from tests.support.servers import forkserver
from tests.support.servers.server_process import ROOT, Server, command, environment
from tests.support.servers.waiting import wait_for

AT_ONCE_S = 120.0
"""More than an end without a drain takes on a busy machine, and less than the drains here."""
DRAIN_S = 3.0
Popen = subprocess.Popen[bytes]


def hang_up(before: signal.Handlers, ended: Connection) -> None:
    """Close the terminal of a supervisor's signals, and send whether they then ask for a stop."""
    begun, begins = os.pipe()
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGHUP, before)
        signals = supervisor.Signals()
        os.write(begins, b".")
        while not (signals.stop or signals.renew):
            time.sleep(0.01)
        os._exit(8 if signals.stop else 7)
    os.read(begun, 1)
    os.close(terminal)
    ended.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


@pytest.mark.slow
@pytest.mark.parametrize(("before", "code"), [(signal.SIG_DFL, 8), (signal.SIG_IGN, 7)])
def test_a_service_under_nohup_outlives_its_terminal(before: signal.Handlers, code: int) -> None:
    """SIGHUP of a closed terminal ends a service, but one that was started with SIGHUP ignored."""
    receiver, sender = forkserver.CONTEXT.Pipe(duplex=False)
    process = forkserver.CONTEXT.Process(target=hang_up, args=(before, sender))
    process.start()
    sender.close()
    assert code == receiver.recv()
    process.join()
    receiver.close()


@pytest.fixture(scope="module")
def commanded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Popen, Path]]:
    """A service of two processes, and its log.

    As a command, so that the process from which the others fork is its own: one that the tests
    fork would fork from what they have imported, and get no signal to the service's group.
    """
    folder = tmp_path_factory.mktemp("commanded")
    log = folder / "service.log"
    flags = f"--database-url={SQLITE.migrated_url(folder)}", f"--blob-url=file://{folder / 'blobs'}"
    options = "--port=0", "--processes=2", f"--drain-seconds={DRAIN_S}"
    with (
        log.open("w") as out,
        subprocess.Popen(
            command(*flags, *options),
            cwd=ROOT,
            env=environment(),
            stdout=out,
            stderr=out,
            start_new_session=True,
        ) as first,
    ):
        try:
            wait_for(lambda: "in 2 processes" in log.read_text())
            yield first, log
        finally:
            if first.poll() is None:
                os.killpg(first.pid, signal.SIGKILL)


@pytest.mark.slow
def test_processes_share_what_one_has_imported(commanded: tuple[Popen, Path]) -> None:
    """They fork from a process that is not the first, and has the service's modules. Less than half
    of the memory of each is its own: a collection of garbage before the first request copied most.
    """
    first, log = commanded
    processes = serving(log)
    (parent,) = {parent_of(pid) for pid in processes}
    assert parent != first.pid
    assert "pydantic_core" in Path(f"/proc/{parent}/maps").read_text()
    for pid in processes:
        kept = dict(re.findall(r"(\w+): +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text()))
        assert int(kept["Private_Dirty"]) < int(kept["Rss"]) / 2


@pytest.mark.long
@pytest.mark.slow
def test_signals_to_all_processes_are_as_those_to_the_first(commanded: tuple[Popen, Path]) -> None:
    """SIGHUP renews, SIGTERM drains, and no living process is taken for dead. It ends them."""
    first, log = commanded
    os.killpg(first.pid, signal.SIGHUP)
    wait_for(lambda: "has taken over from" in log.read_text())
    began = time.monotonic()
    os.killpg(first.pid, signal.SIGTERM)
    assert 0 == first.wait(AT_ONCE_S)
    assert time.monotonic() - began >= DRAIN_S
    assert not any(lives(pid) for pid in serving(log))
    assert " ended with " not in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.long
@pytest.mark.slow
def test_a_renewal_that_is_disturbed(run: Callable[..., Server]) -> None:
    """A new process that dies is replaced by one of the new code, in an interpreter of its own.
    Two signals end all processes at once, also the old one that drains.
    """
    server = run("--processes=2", "--drain-seconds=300")
    old, draining = serving(server.log), "answering for 300 more seconds"
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: draining in server.log.read_text())
    (new,) = set(serving(server.log)) - set(old)
    os.kill(new, signal.SIGKILL)
    wait_for(lambda: len(set(serving(server.log))) == 4)
    (replacement,) = set(serving(server.log)) - {*old, new}
    assert parent_of(replacement) == server.process.pid
    assert (0, [True, True]) == (renewals(server), [lives(pid) for pid in old])
    server.terminate()
    # The second one comes when the first has been acted on: a process sees two at once as one.
    wait_for(lambda: server.log.read_text().count(draining) > 1)
    server.terminate()
    assert 0 == server.process.wait(AT_ONCE_S)
    assert not any(lives(pid) for pid in serving(server.log))


@pytest.mark.slow
def test_ctrl_c_for_the_first_of_several_processes(run: Callable[..., Server]) -> None:
    """It ends the others at once, though they get no signal of the terminal."""
    server = run("--processes=2", "--drain-seconds=300")
    server.process.send_signal(signal.SIGINT)
    assert 0 == server.process.wait(AT_ONCE_S)


@pytest.mark.slow
def test_SIGHUP_to_one_process_is_as_SIGTERM(run: Callable[..., Server]) -> None:
    """It drains, finishes requests and exits with 0."""
    server = run("--drain-seconds=1")
    server.process.send_signal(signal.SIGHUP)
    assert 0 == server.process.wait(AT_ONCE_S)
    assert "answering for 1 more seconds" in server.log.read_text()


class Child:
    """Stands for a process that lives until the test ends it."""

    def __init__(self, _context: Any, _serve: Any, _settings: Any, place: supervisor.Place) -> None:
        self.values = place.values
        self.ended = False

    def ask_to_end(self) -> None:
        """It drains."""


def test_no_two_living_processes_share_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where a new process dies while the old one drains; files are used again."""
    monkeypatch.setattr(supervisor, "ChildProcess", Child)
    slot = supervisor.Slot(lambda *_: 0, Settings(port=0), tmp_path, 0)
    slot.start()
    old, new = slot.process, slot.successor()
    slot.hand_over(new)
    assert ["0a", "0b"] == [old.values.name, new.values.name]
    for _ in range(3):
        slot.process.ended = True  # type: ignore[misc]
        slot.close()
        slot.start()
        assert "0b" == slot.process.values.name
    assert [old, slot.process] == slot.processes
    slot.close()
