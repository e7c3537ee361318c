"""``python -m tests.support.forkserver``: fork services from a process that has imported all.

Two of the three seconds of processor time that a service takes to begin are spent on imports and on
loading compiled loops, and the tests start hundreds. What is forked has begun nothing: it has one
thread, no connection and no settings, and goes on as ``python -m`` would. Tests of the very start
use ``subprocess``.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from modelkin.core.kernels import fast

__all__ = ["Child", "run", "start"]

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """A process, with what :class:`subprocess.Popen` has of it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._lock = threading.Lock()
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; :class:`subprocess.TimeoutExpired` if it does not end."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._descriptor], [], [], timeout)[0]:
                self.returncode = _nursery().ask(pid=self.pid)
                os.close(self._descriptor)
            return self.returncode


def start(module: str, *arguments: str, env: dict[str, str], log: Path) -> Child:
    """``python -m module arguments``, from the root of the repository, with this environment alone.

    Args:
        log: what it says.
    """
    return _start(module, arguments, env, log, log)


def run(module: str, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The same, once it has ended."""
    with TemporaryDirectory() as folder:
        said, errors = Path(folder, "stdout"), Path(folder, "stderr")
        code = _start(module, arguments, env, said, errors).wait()
        return subprocess.CompletedProcess(arguments, code, said.read_text(), errors.read_text())


def _start(
    module: str, arguments: tuple[str, ...], env: dict[str, str], said: Path, errors: Path
) -> Child:
    for file in (said, errors):
        file.write_bytes(b"")  # what an earlier one said there, nobody may take for its words
    files = {"said": str(said), "errors": str(errors)}
    return Child(_nursery().ask(module=module, arguments=arguments, env=env, **files))


class _Nursery:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forkserver"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._end)

    def ask(self, **order: Any) -> int:
        """Its answer."""
        hears, says = self._process.stdin, self._process.stdout
        assert hears is not None
        assert says is not None
        with self._lock:
            hears.write(json.dumps(order) + "\n")
            hears.flush()
            return int(says.readline())

    def _end(self) -> None:
        with self._process:
            pass


@cache
def _nursery() -> _Nursery:
    return _Nursery()


def _serve() -> None:
    """Start what is asked for, and tell the exit codes of what has ended, until nobody asks."""
    for module in ("app.__main__", "workers.__main__"):
        importlib.import_module(module)
    fast.warm()
    assert threading.active_count() == 1, "a fork would lack the other threads"
    for line in sys.stdin:
        order = json.loads(line)
        if "pid" in order:
            answer = os.waitstatus_to_exitcode(os.waitpid(order["pid"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                return _become(**order)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    return None


def _become(module: str, arguments: list[str], env: dict[str, str], said: str, errors: str) -> None:
    """Go on as the module, whose exit is that of this process."""
    for number, path in enumerate((os.devnull, said, errors)):
        # Appended to: both may be one file.
        file = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = arguments
    sys.modules.pop(f"{module}.__main__", None)  # it begins once more, as ``__main__``
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
