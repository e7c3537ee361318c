"""One transaction for what many threads ask for at the same moment.

Each commit waits for the disk, and writers of SQLite for each other, by polling. Whoever comes
while a transaction is under way waits for its end, and the first of them then writes for all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from app.infra.db.database import Database, Writer

__all__ = ["GroupCommit"]

T = TypeVar("T")
R = TypeVar("R")


class _Asked(Generic[T, R]):
    """What one thread waits for: in the end, an answer or an error."""

    def __init__(self, what: T) -> None:
        self.what = what
        self.answer: R | None = None
        self.error: Exception | None = None
        self.done = False


class GroupCommit(Generic[T, R]):
    """Acts for all who ask, each as if it were alone.

    Args:
        database: where it is written.
        act: writes what one thread asks for, in a transaction that may be others', too.
        order: of two that are asked for together, which is first: locks are taken in this order.
        most: how many share a transaction.
    """

    def __init__(
        self,
        database: Database,
        act: Callable[[Writer, T], R],
        *,
        order: Callable[[T], Any],
        most: int = 64,
    ) -> None:
        self._database = database
        self._act = act
        self._order = order
        self._most = most
        self._waiting: deque[_Asked[T, R]] = deque()
        self._writing = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many calls wait for a transaction."""
        return len(self._waiting)

    def do(self, what: T) -> R:
        """What ``act`` answers, once it is committed; what it raises, and nothing is written."""
        asked: _Asked[T, R] = _Asked(what)
        self._waiting.append(asked)
        with self._writing:
            while not asked.done:
                count = min(len(self._waiting), self._most)
                self._write([self._waiting.popleft() for _ in range(count)])
        if asked.error is not None:
            raise asked.error
        return asked.answer  # type: ignore[return-value]  # done, and without an error

    def _write(self, batch: list[_Asked[T, R]]) -> None:
        """Write for all; where that fails, for each alone, so that nobody suffers for another."""
        batch.sort(key=lambda asked: self._order(asked.what))
        try:
            with self._database.writing() as session:
                for asked in batch:
                    asked.answer = self._act(session, asked.what)
        except Exception as error:
            if len(batch) > 1:
                for asked in batch:
                    self._write([asked])
                return
            batch[0].error = error
        for asked in batch:
            asked.done = True
