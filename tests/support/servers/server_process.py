"""The service under test: a real process on its own port, which tests can kill and restart."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Self

import httpx

from tests.support.backends import SQLITE, Backend
from tests.support.servers.forkserver import ModuleProcess, SourceProcess

ROOT = Path(__file__).resolve().parents[3]
_ADDRESS = re.compile(r"running on (http://[\d.]+:\d+)")
_TIMEOUT_S = 60.0
QUERY_TIMEOUT_S = 120.0
"""How long an answer may be computed: no test asks how busy a machine is, unless it says so."""


class Server:
    """``python -m app`` on the database and the supports of ``folder``.

    Args:
        folder: holds the blobs, the log, and the SQLite database if there is one.
        flags: more of the command line.
        backend: the kind of its database.
        module: what runs the service, in place of itself.
        source: the root of another version's code, which runs in place of this one.
        settings: for its environment.
    """

    def __init__(
        self,
        folder: Path,
        *flags: str,
        backend: Backend = SQLITE,
        module: str = "app",
        source: str = "",
        **settings: str,
    ) -> None:
        self.folder = folder
        self.database_url = backend.migrated_url(folder)
        self.blobs = folder / "blobs"
        self.log = folder / "service.log"
        self._flags = flags
        self._module = module
        self._source = source
        self._settings = settings
        self._process: ModuleProcess | None = None
        self.url = ""

    def start(self) -> Self:
        """Start it and wait until it is ready."""
        self.launch()
        return self.wait_until_ready()

    def launch(self) -> None:
        """Start it, without waiting."""
        stores = f"--database-url={self.database_url}", f"--blob-url=file://{self.blobs}"
        flags = *stores, "--port=0", *self._flags
        self._process = self._made(*flags)
        self._process.start()

    def _made(self, *flags: str) -> ModuleProcess:
        usual = {"MODELKIN_QUERY_TIMEOUT_SECONDS": str(QUERY_TIMEOUT_S)}
        env = environment(**{**usual, **self._settings})
        if not self._source:
            return ModuleProcess(self._module, *flags, env=env, stdout=self.log, stderr=self.log)
        code = Path(self._source)
        env["PYTHONPATH"] = f"{code}{os.pathsep}{code / 'client_sdk'}"
        return SourceProcess(
            self._module, *flags, folder=code, env=env, stdout=self.log, stderr=self.log
        )

    def wait_until_ready(self) -> Self:
        """Wait until it is ready."""
        self.wait_for_address()
        end = time.monotonic() + _TIMEOUT_S
        # Without TLS no certificates are loaded, which takes longer than these requests.
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False, verify=False) as http:
            while True:
                answer = http.get(f"{self.url}/readyz")
                if answer.status_code == 200:
                    return self
                assert answer.json()["code"] == "loading", answer.text
                assert time.monotonic() < end, answer.text
                time.sleep(0.02)

    def kill(self) -> None:
        """Send SIGKILL, which is like a power cut for the process."""
        self.process.kill()
        self.process.wait(_TIMEOUT_S)

    def terminate(self) -> None:
        """Send SIGTERM without waiting."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for the exit code."""
        return self.process.wait(_TIMEOUT_S)

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.terminate()
        return self.wait()

    @property
    def process(self) -> ModuleProcess:
        assert self._process is not None
        return self._process

    @property
    def peak_memory(self) -> int:
        """The peak resident memory of the process, in bytes."""
        return self._memory("VmHWM")

    @property
    def memory(self) -> int:
        """The resident memory of the process, in bytes."""
        return self._memory("VmRSS")

    def _memory(self, what: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{what}:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) * 1024

    def wait_for_address(self) -> None:
        """Wait until it answers any request."""
        for _ in range(int(_TIMEOUT_S / 0.05)):
            found = _ADDRESS.search(self.log.read_text())
            if found:
                self.url = found[1]
                return
            assert self.process.is_alive(), self.log.read_text()
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())


def command(*flags: str) -> list[str]:
    """The command line of the service."""
    return [sys.executable, "-m", "app", *flags]


def environment(**settings: str) -> dict[str, str]:
    """This process's environment, with only the given settings of the service.

    None drains unless a test asks for it: hundreds of services end.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.upper().startswith("MODELKIN_")}
    return {**inherited, "MODELKIN_DRAIN_SECONDS": "0", **settings}


def raw_exchange(url: str, request: bytes, *, close: bool = False) -> bytes:
    """Send raw bytes to the service; return its answer until it closes or stops sending.

    Args:
        url: of the service.
        request: sent unchanged, because HTTP clients would repair it.
        close: close the sending side after the request.
    """
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(request)  # the service may answer and close before it has read all
        if close:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while not _is_whole(received):
                chunk = connection.recv(1 << 16)
                if not chunk:
                    break
                received += chunk
    return received


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    return length is not None and len(body) >= int(length[1])
