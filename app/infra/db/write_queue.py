"""Turns for the write lock of a SQLite file: the writers of a process go in order of arrival.

SQLite lets waiting writers poll its lock in growing pauses. So the last writer to come asks most
often, and the first may wait until their time is over.
"""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["WriteQueue"]


class WriteQueue:
    """A lock that is handed to those that wait for it in the order of their arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Event] = deque()
        """One event for each waiting thread, set when its turn comes."""

    def take(self, timeout: float) -> bool:
        """Wait for the turn of this thread; False if it has not come in ``timeout`` seconds."""
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            turn = threading.Event()
            self._waiting.append(turn)
        if turn.wait(timeout):
            return True
        with self._lock:
            if turn.is_set():  # just now, after all
                return True
            self._waiting.remove(turn)
            return False

    def pass_on(self) -> None:
        """Hand the turn to the next waiting thread; any thread may call it."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False
