"""Processes of the service over the stores of many models, and the one that a space belongs to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import httpx

from app.models.index.space_index import index_bytes
from benchmarks.large.store import LargeStore
from tests.support.servers.server_process import Server

__all__ = ["Fleet", "Process", "fleet", "home"]

_READY_S: Final = 600.0
_PROCESS_CLOCK: Final = 2
"""The kind of clock in the last bits of what ``clock_getcpuclockid`` makes of a process."""
_ROOM: Final = 3
"""How many times its part of all indexes a process of several may keep."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the service, and a client of it."""

    server: Server
    http: httpx.Client

    @property
    def busy(self) -> float:
        """Seconds that it has had a processor."""
        pid = self.server.process.pid
        assert pid is not None
        return time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)

    @property
    def memory(self) -> int:
        """Its bytes of memory; of pages that processes share, its part."""
        lines = Path(f"/proc/{self.server.process.pid}/smaps_rollup").read_text().splitlines()
        (kib,) = (int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return kib * 1024


@dataclass(frozen=True, slots=True)
class Fleet:
    """The processes over the stores.

    Attributes:
        whole: has the indexes of all spaces.
        parts: share them; each has room for a few times its part.
    """

    whole: Process
    parts: list[Process]


class _Filled:
    """The database of a large store, as the backend of services."""

    name = "postgres"

    def __init__(self, store: LargeStore) -> None:
        self._url = store.settings.database_url

    def url(self, folder: Path) -> str:
        return self._url

    migrated_url = url


@contextmanager
def fleet(store: LargeStore, processes: int) -> Iterator[Fleet]:
    """A process with room for all indexes, and several others."""
    needed = [index_bytes(space.signature, space.models) for space in store.spaces]
    part = max(1 << 20, *needed, _ROOM * sum(needed) // processes)
    with ExitStack() as stack:

        def started(name: str, index_memory: int) -> Process:
            flags = "--embedded-worker=off", f"--index-memory-bytes={index_memory}"
            redis = f"--redis-url={store.settings.redis_url}"
            server = Server(store.folder, redis, *flags, backend=_Filled(store))
            server.log = store.folder / f"{name}.log"
            server.launch()
            stack.callback(server.kill)
            server.wait_for_address()
            http = httpx.Client(base_url=server.url, timeout=120, trust_env=False)
            process = Process(server, stack.enter_context(http))
            _wait_until_ready(process)
            return process

        whole = started("whole", 1 << 40)
        yield Fleet(whole, [started(f"part-{number}", part) for number in range(processes)])


def _wait_until_ready(process: Process) -> None:
    end = time.monotonic() + _READY_S
    while process.http.get("/readyz").status_code != 200:
        assert time.monotonic() < end, process.server.log.read_text()
        time.sleep(0.1)


def home(space: str, processes: int) -> int:
    """The process that a space belongs to; another number of them moves few spaces."""
    return max(range(processes), key=lambda number: sha256(f"{number}/{space}".encode()).digest())
