"""A supervisor of several server processes behind one address.

The supervisor starts them together, replaces processes that die, renews them one by one at SIGHUP,
and ends them together. Each process has its own database connections, indexes and listening socket.
They share the stores and the port, over which the kernel spreads connections. (On one shared socket
the process that is idle longest takes nearly all.) This module opens no store.

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
from types import FrameType
from typing import Protocol

from app.operations.observability.shared_values import SharedValues
from app.server.metrics_folder import metrics_folder
from app.server.sockets import bind_shared
from app.server.terminal import Terminal
from app.settings import Settings

__all__ = ["END_AT_ONCE", "Place", "Serve", "supervise"]

END_AT_ONCE = signal.SIGUSR1
"""The signal that ends the drain of a process. A second SIGTERM does not: one to all processes, as
systemd sends it, comes twice, the second time from the supervisor.
"""

_POLL_INTERVAL_S = 0.2
"""Time between checks for a signal; the end of a process is noticed at once."""
_RESTART_DELAY_S = 1.0
"""Delay before a dead process is replaced, so that an unavailable store is not flooded."""
_SHUTDOWN_TIMEOUT_S = 30.0
"""Time for a process to end after its drain; its requests have 20 s of it."""
_START_TIMEOUT_S = 300.0
"""Time for a successor to be ready: it may have to compile kernels, on a busy machine."""

log = logging.getLogger(__name__)
# Threads and connections do not survive a fork: processes fork from one that has none of them.
_forks = multiprocessing.get_context("forkserver")
_HELD = {signal.SIGHUP, signal.SIGTERM}
"""Signals that processes hold back until they can act on them. The fork server holds them back for
ever: if it ended, the supervisor would take all its processes for dead.
"""
# A renewed process has a new interpreter, and so the code that is installed by then.
_renewals = multiprocessing.get_context("spawn")
_Context = multiprocessing.context.ForkServerContext | multiprocessing.context.SpawnContext


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a process among the processes of a service.

    Attributes:
        listening: the socket of the process.
        values: its metrics, which the other processes add to their own.
    """

    listening: socket.socket
    values: SharedValues


class Serve(Protocol):
    """Serve until SIGTERM, call ``ready`` once connections are accepted, return the exit code."""

    def __call__(self, settings: Settings, place: Place, ready: Callable[[], None]) -> int: ...


class Signals:
    """The requests that signals make of the supervisor.

    They are plain values: a handler that sets an event may interrupt the holder of its lock: a
    deadlock.

    Attributes:
        stop: stop all processes: after SIGTERM, Ctrl-C, or a closed terminal.
        at_once: stop without a drain: after Ctrl-C, or a second request to stop.
        renew: replace the processes: after SIGHUP; under ``nohup``, which ignores it, also when the
            terminal is closed.
    """

    def __init__(self) -> None:
        self.stop = self.at_once = self.renew = False
        self._stays = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._terminal = Terminal()
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hang_up)

    def stops_within(self, seconds: float) -> bool:
        """Wait for so long, or until a stop is asked for; whether it was."""
        end = time.monotonic() + seconds
        while not self.stop and time.monotonic() < end:
            time.sleep(_POLL_INTERVAL_S)
        return self.stop

    def _on_stop(self, number: int, _: FrameType | None) -> None:
        self.at_once = self.at_once or self.stop or number == signal.SIGINT
        self.stop = True

    def _on_hang_up(self, *_: object) -> None:
        if self._terminal.closed and not self._stays:
            self.stop = True
        else:
            self.renew = True


def supervise(serve: Serve, settings: Settings, ready: Callable[[], None] = lambda: None) -> int:
    """Keep ``settings.processes`` processes serving until SIGTERM or SIGINT.

    Args:
        serve: a module-level function, since each process imports it.
        settings: the settings of each process, with a port that is reserved.
        ready: called once all processes accept connections.

    Returns:
        The exit code: 1 if a process could not start at all.
    """
    signals = Signals()
    _forks.set_forkserver_preload(["app.server.preloaded"])
    with metrics_folder() as folder:
        slots = [Slot(serve, settings, folder, number) for number in range(settings.processes)]
        return _serve_in(slots, signals, settings, ready)


def _serve_in(
    slots: list[Slot], signals: Signals, settings: Settings, ready: Callable[[], None]
) -> int:
    timeout = settings.drain + _SHUTDOWN_TIMEOUT_S
    for slot in slots:
        slot.start()
    try:
        while not signals.stop and not _all_ready(slots):
            wait_for([x for slot in slots for x in slot.process.events], _POLL_INTERVAL_S)
            if any(slot.process.ended for slot in slots):
                return 1
        if not signals.stop:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            log.info("running on http://%s:%d in %d processes", host, settings.port, len(slots))
            ready()
        while not signals.stop:
            _keep(slots, signals)
            if signals.renew:
                signals.renew = False
                _renew(slots, signals, timeout)
    finally:
        _end(slots, signals, timeout)
    return 0


class ChildProcess:
    """One server process.

    Args:
        context: the way to start it.
        serve: the function that it runs.
        place: its place; the socket stays open in this process.
    """

    def __init__(
        self,
        context: _Context,
        serve: Serve,
        settings: Settings,
        place: Place,
    ) -> None:
        self._ready = False
        self.values = place.values
        self._receiver, sender = context.Pipe(duplex=False)
        arguments = serve, settings, place, sender
        self.process: BaseProcess = context.Process(target=_work, args=arguments)
        held = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)  # a child inherits it
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        sender.close()  # so that this side sees the end of the pipe

    @property
    def ready(self) -> bool:
        """Whether the process serves, or served before it died."""
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
        """The events to wait for: the end of the process, and its readiness before that."""
        return [self.process.sentinel, *([] if self._ready else [self._receiver])]

    def ask_to_end(self) -> None:
        """Send SIGTERM, unless it has ended."""
        if not self.ended:
            self.process.terminate()

    def end_drain(self) -> None:
        """Make a process that was asked to end skip its drain."""
        if not self.ended and self.process.pid is not None:
            os.kill(self.process.pid, END_AT_ONCE)

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
        process: the process that serves now, set by :meth:`start`.
    """

    process: ChildProcess
    _listening: socket.socket

    def __init__(self, serve: Serve, settings: Settings, metrics: Path, number: int) -> None:
        self._serve = serve
        self._settings = settings
        self._metrics = metrics
        self._number = number
        self._context: _Context = _forks
        self._processes: list[ChildProcess] = []

    @property
    def processes(self) -> list[ChildProcess]:
        """The processes that live."""
        self._processes = [each for each in self._processes if not each.ended]
        return self._processes

    def start(self) -> None:
        """Start a process on a new socket: the first one, or one for another that has died."""
        self._listening = bind_shared(self._settings)
        self.process = self._child(self._context)

    def successor(self) -> ChildProcess:
        """Start another process on the same socket."""
        return self._child(_renewals)

    def hand_over(self, new: ChildProcess) -> ChildProcess:
        """Have a successor serve from now on, ask the old process to end, and return that.

        Replacements have the code of the successor, too.
        """
        self.process, old = new, self.process
        self._context = _renewals
        old.ask_to_end()
        return old

    def _child(self, context: _Context) -> ChildProcess:
        names = {each.values.name[-1] for each in self.processes}
        letter = min({"a", "b"} - names)  # no more than two live
        child = ChildProcess(context, self._serve, self._settings, self._place(letter))
        self._processes.append(child)
        return child

    def _place(self, letter: str) -> Place:
        return Place(self._listening, SharedValues(self._metrics, f"{self._number}{letter}"))

    def close(self) -> None:
        """Close the socket here: connections go to other ones once no process has it."""
        self._listening.close()


def _all_ready(slots: list[Slot]) -> bool:
    """Ask each slot: an unread message of a ready process would end every wait at once."""
    ready = [slot.process.ready for slot in slots]
    return all(ready)


def _keep(slots: Sequence[Slot], signals: Signals, also: Sequence[Connection | int] = ()) -> None:
    """Wait for a while or until an event, and replace dead processes."""
    wait_for([*(slot.process.process.sentinel for slot in slots), *also], _POLL_INTERVAL_S)
    ended = [slot for slot in slots if slot.process.ended]
    for slot in ended:
        dead = slot.process.process
        log.error("process %s ended with %s", dead.pid, dead.exitcode)
        slot.process.end_by(0.0)
        slot.close()
    if ended and not signals.stops_within(_RESTART_DELAY_S):
        for slot in ended:
            slot.start()


def _renew(slots: list[Slot], signals: Signals, timeout: float) -> None:
    """Replace the processes by new ones, each ready before the old one is asked to end.

    Args:
        timeout: seconds that an old one has to end.
    """
    log.info("renewing %d processes", len(slots))
    for slot in slots:
        others = [each for each in slots if each is not slot]
        new = slot.successor()
        end = time.monotonic() + _START_TIMEOUT_S
        while not (new.ready or new.ended or signals.stop or time.monotonic() > end):
            _keep(others, signals, new.events)
        if signals.stop:
            return  # all of them end
        if not new.ready:
            _give_up(new, slots, signals)
            return
        old = slot.hand_over(new)
        end = time.monotonic() + timeout
        while not (old.ended or signals.stop or time.monotonic() > end):
            _keep(slots, signals, old.events)
        if signals.stop:
            return
        old.end_by(end)
        log.info("process %s has taken over from process %s", new.process.pid, old.process.pid)


def _give_up(new: ChildProcess, slots: list[Slot], signals: Signals) -> None:
    """End a successor that did not come to serve; the old processes serve on."""
    if new.ended:
        why = "ended before it was ready: mend what it says above"
    else:
        why = (
            f"was not ready within {_START_TIMEOUT_S:g} s and is ended: see with `modelkin serve "
            f"check` whether its stores answer"
        )
    log.error(
        "the old processes serve on, as new process %s %s; then send SIGHUP again",
        *(new.process.pid, why),
    )
    new.ask_to_end()
    end = time.monotonic() + _SHUTDOWN_TIMEOUT_S
    while not (new.ended or signals.stop or time.monotonic() > end):
        _keep(slots, signals, [new.process.sentinel])
    if not signals.stop:
        new.end_by(end)


def _end(slots: list[Slot], signals: Signals, timeout: float) -> None:
    """Ask all processes to end at once, and kill those that exceed the timeout."""
    processes = [each for slot in slots for each in slot.processes]
    for slot in slots:
        slot.close()
    for each in processes:
        each.ask_to_end()
    end, draining = time.monotonic() + timeout, True
    while time.monotonic() < end and (alive := [each for each in processes if not each.ended]):
        if draining and signals.at_once:
            draining = False
            for each in alive:
                each.end_drain()
        wait_for([each.process.sentinel for each in alive], _POLL_INTERVAL_S)
    for each in processes:
        each.end_by(end)


def _work(serve: Serve, settings: Settings, place: Place, sender: Connection) -> None:
    """The main function of a child process; it ends when its parent does."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor acts on it, for all of them
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
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
