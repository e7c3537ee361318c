"""Several processes behind one address: started together, started again when they die, ended
together.

Each opens its own database connections, keeps its own indexes and listens with a socket of its own;
what they share is the port, over which the kernel spreads connections, and the stores. (On one
shared socket the process that is idle longest takes nearly all.) This module serves nothing itself
and never touches a store.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnProcess
from typing import Protocol

from app.errors import Unavailable
from app.settings import Settings

__all__ = ["Serve", "listen", "reserve", "supervise"]

_BACKLOG = 2048
_LOOK = 0.2
"""Seconds between looks for a signal; a process that dies is seen at once."""
_PAUSE = 1.0
"""Seconds before a process that died is started again: no faster, while a store is away."""
_PATIENCE = 30.0
"""Seconds that a process has to end once it is told to; its requests have 20 of them."""

log = logging.getLogger(__name__)
_spawn = multiprocessing.get_context("spawn")  # threads and connections survive no fork


class Serve(Protocol):
    """Serves until SIGTERM, calls ``ready`` once it does; the exit code."""

    def __call__(self, settings: Settings, ready: Callable[[], None]) -> int: ...


def reserve(settings: Settings) -> socket.socket:
    """The address, taken from everyone but the processes that :func:`listen` there.

    Raises:
        Unavailable: it is taken, or not this machine's.
    """
    address, family = (settings.host, settings.port), _family(settings)
    try:
        with socket.create_server(address, family=family) as probe:  # shares it with nobody
            address = probe.getsockname()[:2]
        reserved = socket.socket(family)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise Unavailable(f"cannot listen on {settings.host}:{settings.port}: {reason}") from error
    return reserved


def listen(settings: Settings) -> socket.socket:
    """A socket of this process's own on the address that is reserved."""
    address, family = (settings.host, settings.port), _family(settings)
    listening = socket.create_server(address, family=family, backlog=_BACKLOG, reuse_port=True)
    # asyncio does this for its own sockets alone; without it every answer waits 40 ms for an ACK.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def supervise(serve: Serve, settings: Settings) -> int:
    """Keep ``settings.processes`` processes serving until SIGTERM or SIGINT.

    Args:
        serve: a function of a module, since each process imports it anew.
        settings: handed to each; the port is reserved.

    Returns:
        The exit code: 1 where a process could not start in the first place.
    """
    told = threading.Event()
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, lambda *_: told.set())
    workers = [ChildProcess(serve, settings) for _ in range(settings.processes)]
    try:
        while not told.is_set() and not all(worker.ready for worker in workers):
            wait_for([x for worker in workers for x in worker.news], _LOOK)
            if any(worker.ended for worker in workers):
                return 1
        if not told.is_set():
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            log.info("running on http://%s:%d in %d processes", host, settings.port, len(workers))
        _keep(workers, told)
    finally:
        _end(workers)
    return 0


class ChildProcess:
    """One process, and the next one in its place when it dies."""

    def __init__(self, serve: Serve, settings: Settings) -> None:
        self._arguments = serve, settings
        self._ready = False
        self.start()

    def start(self) -> None:
        self._hears, says = _spawn.Pipe(duplex=False)
        self.process: SpawnProcess = _spawn.Process(target=_work, args=(*self._arguments, says))
        self.process.start()
        says.close()  # so that its end is heard here

    @property
    def ready(self) -> bool:
        """Whether it serves, or did so before it died."""
        if not self._ready and self._hears.poll():
            try:
                self._ready = bool(self._hears.recv())
            except EOFError:
                return False
        return self._ready

    @property
    def ended(self) -> bool:
        return self.process.exitcode is not None

    @property
    def news(self) -> list[Connection | int]:
        """What to wait for: its end, and before that its readiness."""
        return [self.process.sentinel, *([] if self._ready else [self._hears])]


def _keep(workers: list[ChildProcess], told: threading.Event) -> None:
    """Start again what dies, until told to stop."""
    while not told.is_set():
        wait_for([worker.process.sentinel for worker in workers], _LOOK)
        ended = [worker for worker in workers if worker.ended]
        for worker in ended:
            log.error("process %s ended with %s", worker.process.pid, worker.process.exitcode)
        if ended and not told.wait(_PAUSE):
            for worker in ended:
                worker.start()


def _end(workers: list[ChildProcess]) -> None:
    """Let requests under way finish, everywhere at once; then no process is left."""
    for worker in workers:
        if not worker.ended:
            worker.process.terminate()
    end = time.monotonic() + _PATIENCE
    for worker in workers:
        worker.process.join(max(0.0, end - time.monotonic()))
        if not worker.ended:
            worker.process.kill()
            worker.process.join()


def _work(serve: Serve, settings: Settings, says: Connection) -> None:
    """The life of one process, which does not outlive its parent, however that ends."""
    threading.Thread(target=_follow_parent, daemon=True).start()

    def ready() -> None:
        says.send(True)
        says.close()

    raise SystemExit(serve(settings, ready))


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _family(settings: Settings) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in settings.host else socket.AF_INET
