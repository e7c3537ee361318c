"""A run of tests that is interrupted leaves no server, no process and no file behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.faults.interruptions import heed_interrupts
from tests.support.servers.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.redis]

ROOT = Path(__file__).resolve().parents[2]
HELD = "tests/packaging/held_servers.py"


@dataclass(frozen=True)
class Run:
    """``make test-rest`` of one test that waits.

    Attributes:
        make: the process of make, which leads a group of processes.
        pids: what the test has started, and the process that carries it out.
        folder: where all files of the run lie.
    """

    make: subprocess.Popen[bytes]
    pids: dict[str, int]
    folder: Path


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run whose servers are there; its folder has a short path, for the sockets in it."""
    said, folder = tmp_path / "said", Path(tempfile.mkdtemp(prefix="i"))
    targets = (f"-o{target}" for target in (".venv/.dev", "browser", "kernels"))
    binaries = f"BIN={Path(sys.executable).parent}"
    own = ("TESTS_", "PYTEST_", "MAKE", "MFLAGS")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    make = subprocess.Popen(
        ["make", *targets, binaries, "test-rest", f"ARGS=-q -n 1 --max-worker-restart=0 {HELD}"],
        cwd=ROOT,
        env={**inherited, "TMPDIR": str(folder), "HELD_SERVERS": str(said)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    while not said.exists():
        assert make.poll() is None
        time.sleep(0.05)
    yield Run(make, json.loads(said.read_text()), folder)
    make.wait()


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def by_make(run: Run) -> None:
    """SIGTERM to make alone, as a supervisor of builds sends it."""
    run.make.terminate()


def by_terminal(run: Run) -> None:
    """Ctrl-C, which goes to the whole group."""
    os.killpg(run.make.pid, signal.SIGINT)


@pytest.mark.long
@pytest.mark.parametrize("interrupt", [by_make, by_terminal])
def test_a_run_that_is_interrupted_leaves_nothing(
    run: Run, interrupt: Callable[[Run], None]
) -> None:
    """Its servers and those of its workers end, and its folder is removed."""
    interrupt(run)
    assert 0 != run.make.wait()
    wait_for(lambda: not any(map(runs, run.pids.values())))
    wait_for(lambda: not any(run.folder.iterdir()))


def test_a_killed_worker_leaves_no_server(run: Run) -> None:
    """What it had started ends with the run."""
    os.kill(run.pids["worker"], signal.SIGKILL)
    assert 0 != run.make.wait()
    wait_for(lambda: not any(map(runs, run.pids.values())))
