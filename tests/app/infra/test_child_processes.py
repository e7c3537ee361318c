"""A long-lived child process: warm from call to call, replaced when it ends, never an orphan."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.infra.errors import Unavailable
from app.infra.subprocesses import CallProcess
from modelkin.errors import InvalidParameter

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def child() -> Iterator[CallProcess]:
    """A child that is ended after the test."""
    child = CallProcess("adding up")
    yield child
    child.close()


def sockets_of(pid: int) -> set[str]:
    """The sockets that a process has open."""
    files = list(Path(f"/proc/{pid}/fd").iterdir())
    names = {os.readlink(file) for file in files if file.is_symlink()}
    return {name for name in names if name.startswith("socket:")}


def wait_for_end(pid: int) -> None:
    """Wait until a process computes no more; its parent may not have asked for its exit code."""
    end = time.monotonic() + 20
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < end, f"process {pid} goes on"
            time.sleep(0.02)


def fail(how: str) -> None:
    """Ends in some way that is no answer."""
    if how == "mistake":
        raise InvalidParameter("there are no such leaves", field="leaves")
    if how == "bug":
        raise ZeroDivisionError("by nothing")
    os.kill(os.getpid(), signal.SIGKILL)


def slowly(_: bytes) -> None:
    """Takes very long."""
    time.sleep(60.0)


def end_once(mark: Path) -> str:
    """Ends by SIGTERM the first time."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGTERM)
    return "computed"


@pytest.mark.slow
def test_a_signal_to_the_whole_group_costs_no_call(child: CallProcess, tmp_path: Path) -> None:
    """A supervisor sends SIGTERM to all processes of a service, whose requests end first."""
    assert child.call(end_once, tmp_path / "ended") == "computed"
    assert (tmp_path / "ended").exists()


def test_one_process_answers_every_call_at_a_lower_priority(child: CallProcess) -> None:
    """The first call starts it, and each of them gets its own answer."""
    pids = {child.call(os.getpid) for _ in range(3)}
    assert pids == {child.pid}
    assert os.getpid() not in pids
    assert os.nice(0) + 5 == child.call(os.nice, 0)
    matrix = np.random.default_rng(3).random((300, 300))
    assert np.array_equal(np.sort(matrix, axis=0), child.call(np.sort, matrix, 0))


def test_what_is_refused_there_is_refused_here_by_the_same_process(child: CallProcess) -> None:
    """Neither a refusal nor a bug ends it."""
    with pytest.raises(InvalidParameter, match="no such leaves") as caught:
        child.call(fail, "mistake")
    assert "leaves" == caught.value.field
    pid = child.pid
    with pytest.raises(RuntimeError, match="ZeroDivisionError: by nothing"):
        child.call(fail, "bug")
    assert pid == child.call(os.getpid)


@pytest.mark.slow
def test_one_that_is_killed_at_work_is_replaced(child: CallProcess) -> None:
    """Its call is refused, as by a lack of memory; the next one is answered by another process."""
    with pytest.raises(Unavailable, match=r"adding up ended early, exit code -9.*memory"):
        child.call(fail, "death")
    assert 6 == child.call(sum, [1, 2, 3])


@pytest.mark.slow
def test_one_that_is_killed_while_it_waits_costs_no_call(child: CallProcess) -> None:
    """The next call finds that it is gone, and has another one."""
    first = child.call(os.getpid)
    os.kill(first, signal.SIGKILL)
    while first in {child.pid for child in multiprocessing.active_children()}:
        time.sleep(0.02)
    assert first != child.call(os.getpid)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["computes", "stands still"])
def test_one_that_does_not_answer_is_ended(child: CallProcess, how: str) -> None:
    """A call ends in time, and its answer is not taken for that of the next one; a process that
    stands still does not even read its request.
    """
    pid = child.call(os.getpid)
    if how == "stands still":
        os.kill(pid, signal.SIGSTOP)
    child.timeout = 0.2
    with pytest.raises(Unavailable, match=r"adding up takes longer than 0\.2 s"):
        child.call(slowly, bytes(1 << 20))
    child.timeout = 60.0
    assert 6 == child.call(sum, [1, 2, 3])


def test_it_has_no_socket_of_its_parent(child: CallProcess) -> None:
    """A service that is started again can listen where the one before did."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert listening.fileno() > 2
        pid = child.call(os.getpid)
        assert not sockets_of(pid) & sockets_of(os.getpid())


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("busy", [False, True])
def test_it_ends_with_its_parent(how: signal.Signals, busy: bool) -> None:
    """However the parent ends, and whether or not the child computes just then."""
    work = "child.call(time.sleep, 1.0)" if busy else "time.sleep(60)"
    program = (
        "import os, time\n"
        "from app.infra.subprocesses import CallProcess\n"
        "child = CallProcess('sleeping')\n"
        "print(child.call(os.getpid), flush=True)\n"
        f"{work}\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client_sdk'}"},
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(how)
        wait_for_end(pid)
