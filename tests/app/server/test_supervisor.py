"""How several processes are started: what their supervisor asks before it waits."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from app.server import supervisor
from app.settings import Settings


class Child:
    """Stands for a process that is never ready, and ends when it is asked to."""

    made: list[Child]

    def __init__(self, *_: Any) -> None:
        self.made.append(self)
        self.asked = 0
        self.ended = False
        self.events: list[Any] = []

    def ask_to_end(self) -> None:
        """It ends."""
        self.ended = True

    def end_by(self, _: float) -> None:
        """It has ended."""

    @property
    def ready(self) -> bool:
        """Not yet."""
        self.asked += 1
        return False


def test_all_processes_are_asked_before_each_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of one that is ready, left unread, would end each wait for the others at once:
    that took a whole core until the slowest of them was ready.
    """
    Child.made = []
    waits: list[list[Any]] = []

    def wait(events: list[Any], _timeout: float) -> None:
        waits.append(events)
        if len(waits) == 3:
            Child.made[0].ask_to_end()

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(supervisor, "ChildProcess", Child)
    monkeypatch.setattr(supervisor, "wait_for", wait)
    assert 1 == supervisor.supervise(lambda *_: 0, Settings(processes=2, port=0))
    assert [3, 3] == [child.asked for child in Child.made]
