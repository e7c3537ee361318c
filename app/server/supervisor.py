"""A supervisor of several server processes behind one address.

It starts them together, replaces those that die, and ends them together. Each process has its own
database connections, indexes and listening socket. They share the stores and the port, over which
the kernel spreads connections. (On one shared socket the process that is idle longest takes nearly
all.) This module opens no store.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import ForkServerProcess
from typing import Protocol

from app.settings import Settings

__all__ = ["Serve", "supervise"]

_POLL_INTERVAL_S = 0.2
"""Time between checks for a signal; the end of a process is noticed at once."""
_RESTART_DELAY_S = 1.0
"""Delay before a dead process is replaced, so that an unavailable store is not flooded."""
_SHUTDOWN_TIMEOUT_S = 30.0
"""Time for a process to end after SIGTERM; its requests have 20 s of it."""

log = logging.getLogger(__name__)
# Threads and connections do not survive a fork: processes fork from one that has none of them.
_forks = multiprocessing.get_context("forkserver")


class Serve(Protocol):
    """Serve until SIGTERM, call ``ready`` once connections are accepted, return the exit code."""

    def __call__(self, settings: Settings, ready: Callable[[], None]) -> int: ...


def supervise(serve: Serve, settings: Settings, ready: Callable[[], None] = lambda: None) -> int:
    """Keep ``settings.processes`` processes serving until SIGTERM or SIGINT.

    Args:
        serve: a module-level function, since each process imports it.
        settings: for each process; the port is reserved.
        ready: called once all of them accept connections.

    Returns:
        The exit code: 1 if a process could not start at all.
    """
    stopping = threading.Event()
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, lambda *_: stopping.set())
    _forks.set_forkserver_preload(["app.server.preloaded"])
    processes = [ChildProcess(serve, settings) for _ in range(settings.processes)]
    for process in processes:
        process.start()
    try:
        while not stopping.is_set() and not _all_ready(processes):
            wait_for([x for process in processes for x in process.events], _POLL_INTERVAL_S)
            if any(process.ended for process in processes):
                return 1
        if not stopping.is_set():
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            log.info("running on http://%s:%d in %d processes", host, settings.port, len(processes))
            ready()
        _keep(processes, stopping)
    finally:
        _end(processes)
    return 0


class ChildProcess:
    """One server process, and its replacements.

    Attributes:
        process: set by :meth:`start`.
    """

    process: ForkServerProcess
    _receiver: Connection

    def __init__(self, serve: Serve, settings: Settings) -> None:
        self._arguments = serve, settings
        self._ready = False

    def start(self) -> None:
        """Start the process, or its replacement after its end."""
        self._receiver, sender = _forks.Pipe(duplex=False)
        self.process = _forks.Process(target=_work, args=(*self._arguments, sender))
        self.process.start()
        sender.close()  # so that this side sees the end of the pipe

    @property
    def ready(self) -> bool:
        """Whether it serves, or served before it died."""
        if not self._ready and self._receiver.poll():
            try:
                self._ready = bool(self._receiver.recv())
            except EOFError:
                return False
        return self._ready

    @property
    def ended(self) -> bool:
        return self.process.exitcode is not None

    @property
    def events(self) -> list[Connection | int]:
        """What to wait for: the end of the process, and its readiness before that."""
        return [self.process.sentinel, *([] if self._ready else [self._receiver])]


def _all_ready(processes: list[ChildProcess]) -> bool:
    """Ask each of them: the unread message of one that is ready would end every wait at once."""
    ready = [each.ready for each in processes]
    return all(ready)


def _keep(processes: list[ChildProcess], stopping: threading.Event) -> None:
    """Replace dead processes until asked to stop."""
    while not stopping.is_set():
        wait_for([each.process.sentinel for each in processes], _POLL_INTERVAL_S)
        ended = [each for each in processes if each.ended]
        for each in ended:
            log.error("process %s ended with %s", each.process.pid, each.process.exitcode)
        if ended and not stopping.wait(_RESTART_DELAY_S):
            for each in ended:
                each.start()


def _end(processes: list[ChildProcess]) -> None:
    """Terminate all processes at once, and kill those that exceed the timeout."""
    for each in processes:
        if not each.ended:
            each.process.terminate()
    end = time.monotonic() + _SHUTDOWN_TIMEOUT_S
    for each in processes:
        each.process.join(max(0.0, end - time.monotonic()))
        if not each.ended:
            each.process.kill()
            each.process.join()


def _work(serve: Serve, settings: Settings, sender: Connection) -> None:
    """The main function of a child process; it ends when its parent does."""
    threading.Thread(target=_follow_parent, daemon=True).start()

    def ready() -> None:
        sender.send(True)
        sender.close()

    raise SystemExit(serve(settings, ready))


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
