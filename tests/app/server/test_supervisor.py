"""How several processes are started and renewed: what their supervisor asks before it waits."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from app.server import supervisor
from app.settings import Settings


class Child:
    """Stands for a process that is ready if it is among the first, and ends when it is asked to."""

    made: list[Child]
    first_ready = 0

    def __init__(self, *_: Any) -> None:
        self.made.append(self)
        self.asked = 0
        self.ended = False
        self.events: list[Any] = []
        self.number = len(self.made)
        self.process = SimpleNamespace(sentinel=self, pid=self.number)
        self.values = SimpleNamespace(name="a")

    def ask_to_end(self) -> None:
        """It ends."""
        self.ended = True

    def end_by(self, _: float) -> None:
        """It has ended."""

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        self.asked += 1
        return self.number <= self.first_ready


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> dict[int, Callable[..., None]]:
    """The handlers of signals, which none of this process becomes; and no process is started."""
    found: dict[int, Callable[..., None]] = {}
    monkeypatch.setattr(signal, "signal", found.__setitem__)
    monkeypatch.setattr(supervisor, "ChildProcess", Child)
    monkeypatch.setattr(Child, "made", [], raising=False)
    return found


@pytest.mark.usefixtures("handlers")
def test_all_processes_are_asked_before_each_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of one that is ready, left unread, would end each wait for the others at once:
    that took a whole core until the slowest of them was ready.
    """
    waits: list[list[Any]] = []

    def wait(events: list[Any], _timeout: float) -> None:
        waits.append(events)
        if len(waits) == 3:
            Child.made[0].ask_to_end()

    monkeypatch.setattr(supervisor, "wait_for", wait)
    assert 1 == supervisor.supervise(lambda *_: 0, Settings(processes=2, port=0))
    assert [3, 3] == [child.asked for child in Child.made]


def test_a_successor_that_is_never_ready_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
    handlers: dict[int, Callable[..., None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The old processes serve on, and the log says what to do."""
    monkeypatch.setattr(Child, "first_ready", 2)
    monkeypatch.setattr(supervisor, "_START_TIMEOUT_S", 0.05)
    served_on: list[bool] = []

    def wait(_events: list[Any], _timeout: float) -> None:
        if any(child.ended for child in Child.made):
            served_on.extend(not child.ended for child in Child.made)
            handlers[signal.SIGTERM](signal.SIGTERM, None)

    monkeypatch.setattr(supervisor, "wait_for", wait)
    assert 0 == supervisor.supervise(
        lambda *_: 0, Settings(processes=2, port=0), lambda: handlers[signal.SIGHUP]()
    )
    assert [True, True, False] == served_on
    assert (
        "the old processes serve on, as new process 3 was not ready within 0.05 s and is ended: "
        "see with `modelkin serve check` whether its stores answer; then send SIGHUP again"
    ) in caplog.text
