"""Group commit: concurrent writes share one transaction.

Each commit waits for the disk, and SQLite's writers wait for each other by polling. Threads that
arrive during a transaction wait for its end; the first of them then writes for all.
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


class _Request(Generic[T, R]):
    """The write of one thread, and its result or error in the end."""

    def __init__(self, what: T) -> None:
        self.what = what
        self.answer: R | None = None
        self.error: Exception | None = None
        self.done = False


class GroupCommit(Generic[T, R]):
    """Writes for all waiting threads, with the same result as one by one.

    Args:
        database: the database to write.
        act: writes for one thread, in a transaction that others may share.
        order: sorts the writes of a transaction, so that locks are taken in one order.
        most: the number of writes that share a transaction.
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
        self._waiting: deque[_Request[T, R]] = deque()
        self._writing = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many calls wait for a transaction."""
        return len(self._waiting)

    def do(self, what: T) -> R:
        """Run ``act`` and commit; return its result, or raise its error with nothing written."""
        request: _Request[T, R] = _Request(what)
        self._waiting.append(request)
        with self._writing:
            while not request.done:
                count = min(len(self._waiting), self._most)
                self._write([self._waiting.popleft() for _ in range(count)])
        if request.error is not None:
            raise request.error
        return request.answer  # type: ignore[return-value]  # done, and without an error

    def _write(self, batch: list[_Request[T, R]]) -> None:
        """Write for all; after a failure for each alone, so that one error fails one thread."""
        batch.sort(key=lambda request: self._order(request.what))
        try:
            with self._database.writing() as session:
                for request in batch:
                    request.answer = self._act(session, request.what)
        except Exception as error:
            if len(batch) > 1:
                for request in batch:
                    self._write([request])
                return
            batch[0].error = error
        for request in batch:
            request.done = True
