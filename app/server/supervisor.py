"""A supervisor of several server processes behind one address.

It starts them together, replaces those that die, renews them one by one at SIGHUP, and ends them
together. Each process has its own database connections, indexes and listening socket. They share
the stores and the port, over which the kernel spreads connections. (On one shared socket the
process that is idle longest takes nearly all.) This module opens no store.

The supervisor holds each socket as well, so that a new process goes on with the connections that
wait on it: closing it would reset them.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from app.observability.shared_values import SharedValues
from app.server.sockets import bind_shared
from app.server.terminal import Terminal
from app.settings import Settings

__all__ = ["Place", "Serve", "supervise"]

_POLL_INTERVAL_S = 0.2
"""Time between checks for a signal; the end of a process is noticed at once."""
_RESTART_DELAY_S = 1.0
"""Delay before a dead process is replaced, so that an unavailable store is not flooded."""
_SHUTDOWN_TIMEOUT_S = 30.0
"""Time for a process to end after its drain; its requests have 20 s of it."""

log = logging.getLogger(__name__)
# Threads and connections do not survive a fork: processes fork from one that has none of them.
_forks = multiprocessing.get_context("forkserver")
# A renewed process has an interpreter of its own, and so the code that is installed by then.
_renewals = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process is among the processes of a service.

    Attributes:
        listening: its socket.
        values: its metrics, which the others add to theirs.
    """

    listening: socket.socket
    values: SharedValues


class Serve(Protocol):
    """Serve until SIGTERM, call ``ready`` once connections are accepted, return the exit code."""

    def __call__(self, settings: Settings, place: Place, ready: Callable[[], None]) -> int: ...


class _Signals:
    """What signals ask of the supervisor.

    Attributes:
        stop: SIGTERM, Ctrl-C, or a closed terminal.
        renew: SIGHUP otherwise.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.renew = threading.Event()
        terminal = Terminal()
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: self.stop.set())
        signal.signal(
            signal.SIGHUP, lambda *_: (self.stop if terminal.closed else self.renew).set()
        )


def supervise(serve: Serve, settings: Settings, ready: Callable[[], None] = lambda: None) -> int:
    """Keep ``settings.processes`` processes serving until SIGTERM or SIGINT.

    Args:
        serve: a module-level function, since each process imports it.
        settings: for each process; the port is reserved.
        ready: called once all of them accept connections.

    Returns:
        The exit code: 1 if a process could not start at all.
    """
    signals = _Signals()
    _forks.set_forkserver_preload(["app.server.preloaded"])
    with TemporaryDirectory(prefix="modelkin-metrics-") as folder:
        slots = [
            Slot(serve, settings, Path(folder), number) for number in range(settings.processes)
        ]
        return _serve_in(slots, signals, settings, ready)


def _serve_in(
    slots: list[Slot], signals: _Signals, settings: Settings, ready: Callable[[], None]
) -> int:
    timeout = settings.drain + _SHUTDOWN_TIMEOUT_S
    for slot in slots:
        slot.start()
    try:
        while not signals.stop.is_set() and not _all_ready(slots):
            wait_for([x for slot in slots for x in slot.process.events], _POLL_INTERVAL_S)
            if any(slot.process.ended for slot in slots):
                return 1
        if not signals.stop.is_set():
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            log.info("running on http://%s:%d in %d processes", host, settings.port, len(slots))
            ready()
        while not signals.stop.is_set():
            _keep(slots, signals)
            if signals.renew.is_set():
                signals.renew.clear()
                _renew(slots, signals, timeout)
    finally:
        _end(slots, timeout)
    return 0


class ChildProcess:
    """One server process.

    Args:
        context: how it is started.
        serve: what it runs.
        settings: of the service.
        place: its socket stays open here.
    """

    def __init__(
        self,
        context: multiprocessing.context.ForkServerContext | multiprocessing.context.SpawnContext,
        serve: Serve,
        settings: Settings,
        place: Place,
    ) -> None:
        self._ready = False
        self.values = place.values
        self._receiver, sender = context.Pipe(duplex=False)
        arguments = serve, settings, place, sender
        self.process: BaseProcess = context.Process(target=_work, args=arguments)
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

    def ask_to_end(self) -> None:
        """Send SIGTERM, unless it has ended."""
        if not self.ended:
            self.process.terminate()

    def end_by(self, end: float) -> None:
        """Wait for its end until a time of the monotonic clock, then kill it."""
        self.process.join(max(0.0, end - time.monotonic()))
        if not self.ended:
            self.process.kill()
            self.process.join()
        self.values.forget_gauges()


class Slot:
    """The place of one server process, of its replacements and of its renewals.

    Attributes:
        process: that serves now, set by :meth:`start`.
    """

    process: ChildProcess
    _listening: socket.socket

    def __init__(self, serve: Serve, settings: Settings, metrics: Path, number: int) -> None:
        self._serve = serve
        self._settings = settings
        self._metrics = metrics
        self._number = number

    def start(self) -> None:
        """Start a process on a new socket: the first one, or one for another that has died."""
        self._listening = bind_shared(self._settings)
        self.process = ChildProcess(_forks, self._serve, self._settings, self._place("a"))

    def successor(self) -> ChildProcess:
        """Start another process on the same socket."""
        letter = "b" if self.process.values.name.endswith("a") else "a"  # no more than two live
        return ChildProcess(_renewals, self._serve, self._settings, self._place(letter))

    def _place(self, letter: str) -> Place:
        return Place(self._listening, SharedValues(self._metrics, f"{self._number}{letter}"))

    def close(self) -> None:
        """Close the socket here: connections go to other ones once no process has it."""
        self._listening.close()


def _all_ready(slots: list[Slot]) -> bool:
    """Ask each of them: the unread message of one that is ready would end every wait at once."""
    ready = [slot.process.ready for slot in slots]
    return all(ready)


def _keep(slots: Sequence[Slot], signals: _Signals, also: Sequence[Connection | int] = ()) -> None:
    """Wait for a while, or for what else may happen, and replace dead processes."""
    wait_for([*(slot.process.process.sentinel for slot in slots), *also], _POLL_INTERVAL_S)
    ended = [slot for slot in slots if slot.process.ended]
    for slot in ended:
        dead = slot.process.process
        log.error("process %s ended with %s", dead.pid, dead.exitcode)
        slot.process.end_by(0.0)
        slot.close()
    if ended and not signals.stop.wait(_RESTART_DELAY_S):
        for slot in ended:
            slot.start()


def _renew(slots: list[Slot], signals: _Signals, timeout: float) -> None:
    """Replace the processes by new ones, each ready before the old one is asked to end.

    Args:
        timeout: seconds that an old one has to end.
    """
    log.info("renewing %d processes", len(slots))
    for slot in slots:
        others = [each for each in slots if each is not slot]
        new, old = slot.successor(), slot.process
        while not (new.ready or new.ended or signals.stop.is_set()):
            _keep(others, signals, new.events)
        if not new.ready:
            if not signals.stop.is_set():
                log.error("the processes go on as they are: a new one ended before it was ready")
            new.ask_to_end()
            new.end_by(time.monotonic() + _SHUTDOWN_TIMEOUT_S)
            return
        slot.process = new
        old.ask_to_end()
        end = time.monotonic() + timeout
        while not (old.ended or signals.stop.is_set() or time.monotonic() > end):
            _keep(slots, signals, old.events)
        if not signals.stop.is_set():
            old.end_by(end)
        log.info("process %s has taken over from process %s", new.process.pid, old.process.pid)


def _end(slots: list[Slot], timeout: float) -> None:
    """Ask all processes to end at once, and kill those that exceed the timeout."""
    for slot in slots:
        slot.close()
        slot.process.ask_to_end()
    end = time.monotonic() + timeout
    for slot in slots:
        slot.process.end_by(end)


def _work(serve: Serve, settings: Settings, place: Place, sender: Connection) -> None:
    """The main function of a child process; it ends when its parent does."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor acts on it, for all of them
    threading.Thread(target=_follow_parent, daemon=True).start()

    def ready() -> None:
        sender.send(True)
        sender.close()

    raise SystemExit(serve(settings, place, ready))


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
