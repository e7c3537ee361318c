"""The demo's own service: a process that is started, awaited and always stopped.

It owns the command ``python -m app`` and its environment, and reads no answer.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from modelkin import Client

__all__ = ["DemoError", "Service", "choose_port", "running"]

HOST = "127.0.0.1"
START_SECONDS = 600.0
"""The very first start compiles the kernels, which takes minutes on a machine that is busy."""
REPORT_SECONDS = 15.0
"""Seconds between two reports of what the demo waits for."""
STOP_SECONDS = 15.0
REPOSITORY = Path(__file__).resolve().parent.parent


class DemoError(Exception):
    """The demo cannot go on; the message is the one line its user reads."""


class Service:
    """A running service: its address, the folder of its store, and the process behind it."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.url = f"http://{HOST}:{port}"
        self.folder = log.parent
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Return once the service answers; raise :class:`DemoError` if it ends or is late."""
        began = reported = time.monotonic()
        with Client(self.url, timeout=5.0, retries=0) as client:
            while not client.ready():
                if self._process.poll() is not None:
                    raise DemoError(f"the service did not start: {self._last_words()}")
                now = time.monotonic()
                if now > began + START_SECONDS:
                    raise DemoError(
                        f"the service is not ready after {START_SECONDS:.0f} s; its last words: "
                        f"{self._last_words()}. Run it again: what is compiled by now is kept"
                    )
                if now > reported + REPORT_SECONDS:
                    reported = now
                    print(f"waiting for the service: {self._last_words()}", flush=True)
                time.sleep(0.1)

    def wait(self) -> None:
        """Wait until Ctrl-C; raise :class:`DemoError` if the service ends by itself."""
        status = self._process.wait()
        raise DemoError(f"the service ended by itself with status {status}: {self._last_words()}")

    def stop(self) -> None:
        """Terminate the service, and kill it if it does not end."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        said = [line.strip() for line in lines if line.strip()]
        return said[-1] if said else "it said nothing"


@contextmanager
def running(data: Path, port: int, settings: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Run a service on an embedded store in ``data``; stop it at the end of the block.

    Args:
        data: the folder of the store.
        port: the port that it listens on.
        settings: further variables of its environment.
    """
    data.mkdir(parents=True, exist_ok=True)
    log = data / "service.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "app"],
            cwd=REPOSITORY,
            env=_environment(data, port) | dict(settings or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the demo, which then stops the service in order
        )
    service = Service(port, process, log)
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.stop()


def choose_port(wanted: int) -> int:
    """The wanted port if it is free, else any free port."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise DemoError(f"no free port on {HOST}")


def _environment(data: Path, port: int) -> dict[str, str]:
    """This process's environment, with the demo's settings instead of the user's."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("MODELKIN_")
    }
    return inherited | {
        "MODELKIN_DATABASE_URL": f"sqlite:///{data.resolve() / 'modelkin.db'}",
        "MODELKIN_HOST": HOST,
        "MODELKIN_PORT": str(port),
    }
