"""Processes of the services, forked from a process that has imported their modules.

A service takes three seconds of processor time to start; imports and compiled kernels take two of
them. The tests start hundreds of services. ``multiprocessing`` keeps the process to fork from: it
has one thread, no connection and no settings. Tests of the startup itself use ``subprocess``.
Where tests run side by side, there is one such process for all who carry them out.

A service of several processes forks them from a process of its own. Here that is a fork, too.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.servers.guardian import guard

__all__ = ["CONTEXT", "ModuleProcess", "SourceProcess", "run", "share"]

ROOT = Path(__file__).resolve().parents[3]

CONTEXT = multiprocessing.get_context("forkserver")
"""Forks of that process, also for functions of the tests."""
_IMPORTED = ["tests.support.servers.forkserver", "tests.support.servers.imported_services"]
CONTEXT.set_forkserver_preload(_IMPORTED)
_SHARED = "TESTS_FORKSERVER"
"""The variable that names the socket of the process to fork from, where another one started it."""


def share() -> None:
    """Start the process to fork from, also for the processes that this one starts."""
    server = _OwnServer()
    server.set_forkserver_preload(_IMPORTED)
    os.environ[_SHARED] = server.started()


class ModuleProcess(ForkServerProcess):
    """``python -m module arguments``.

    Args:
        folder: it is run from there.
        env: its whole environment; nothing is inherited.
        stdout: the file for its output.
        stderr: the file for its errors; may be the same file.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        folder: Path = ROOT,
        env: Mapping[str, str],
        stdout: Path,
        stderr: Path,
    ) -> None:
        super().__init__()
        self._module = module
        self._folder = folder
        self._arguments = arguments
        self._env = dict(env)
        self.stdout, self.stderr = stdout, stderr

    def start(self) -> None:
        """Start it, with empty files for its output."""
        guard()
        for file in (self.stdout, self.stderr):
            file.write_bytes(b"")
        super().start()

    def run(self) -> None:
        """Become the module; its exit code is that of this process."""
        for number, path in enumerate((Path(os.devnull), self.stdout, self.stderr)):
            # Append, because both may go to one file.
            file = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND)
            os.dup2(file, number)
            os.close(file)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup
        os.chdir(self._folder)
        os.environ.clear()
        os.environ.update(self._env)
        self._become(self._module, *self._arguments)

    def _become(self, module: str, *arguments: str) -> None:
        """Run the module in this process, with what it has imported."""
        sys.argv[1:] = arguments
        if any(each.startswith("--processes=") for each in arguments):
            forks = _ForkedServer()
            forkserver.connect_to_new_process = forks.connect_to_new_process
        sys.modules.pop(f"{module}.__main__", None)  # it runs once more, as ``__main__``
        runpy.run_module(module, run_name="__main__", alter_sys=True)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.is_alive() and self.pid is not None:
            os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, or minus the signal that ended the process.

        Raises:
            TimeoutError: the process is still running.
        """
        self.join(timeout)
        if self.exitcode is None:
            raise TimeoutError(f"{self._module}, process {self.pid}, runs after {timeout} s")
        return self.exitcode


class _ForkedServer(forkserver.ForkServer):
    """A fork server that is a fork of this process, with its output and environment.

    It ends once all that could ask it have ended.
    """

    def __init__(self) -> None:
        super().__init__()
        alive, self._forkserver_alive_fd = os.pipe()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("")  # Linux gives it an address
            listener.listen()
            self._forkserver_address = listener.getsockname()
            self._forkserver_pid = os.fork()
            if self._forkserver_pid == 0:
                self._serve(listener.detach(), alive)
        os.close(alive)

    def _serve(self, listener: int, alive: int) -> None:
        """Serve until ``SystemExit``, as the last client has ended."""
        os.close(self._forkserver_alive_fd)
        # As in the one that a supervisor starts: none of its processes ends before it can act.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGTERM})
        forkserver.main(listener, alive, [])


class _OwnServer(forkserver.ForkServer):
    """A fork server that others may share; it ends with this process."""

    _forkserver_address: str

    def started(self) -> str:
        """The address of its socket, once it runs."""
        self.ensure_running()
        return self._forkserver_address


class _SharedServer(forkserver.ForkServer):
    """The fork server of another process, which outlives this one.

    Args:
        address: of its socket.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._forkserver_address = address
        unused, self._forkserver_alive_fd = os.pipe()
        os.close(unused)

    def ensure_running(self) -> None:
        """It runs: the other process ends behind this one."""


class SourceProcess(ModuleProcess):
    """``python -m module arguments`` of the code in ``folder``, by a Python that has imported none.

    ``PYTHONPATH`` in ``env`` names where in that folder its packages are.
    """

    def _become(self, module: str, *arguments: str) -> None:
        os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


def run(
    module: str, *arguments: str, folder: Path = ROOT, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module arguments`` to its end."""
    with TemporaryDirectory() as outputs:
        stdout, stderr = Path(outputs, "stdout"), Path(outputs, "stderr")
        process = ModuleProcess(
            module, *arguments, folder=folder, env=env, stdout=stdout, stderr=stderr
        )
        process.start()
        code = process.wait()
        return subprocess.CompletedProcess(arguments, code, stdout.read_text(), stderr.read_text())


if _SHARED in os.environ:
    forkserver.connect_to_new_process = _SharedServer(os.environ[_SHARED]).connect_to_new_process


@atexit.register
def _kill_the_rest() -> None:
    """Kill the processes that broken tests left behind; ``multiprocessing`` would wait for them."""
    for process in multiprocessing.active_children():
        process.kill()
