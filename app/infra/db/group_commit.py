"""Group commit: concurrent writes share one transaction.

Each commit waits for the disk, and writers of SQLite wait for each other, by polling. A thread that
comes during a transaction waits for its end; the first one waiting then writes for all.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from app.infra.db.database import Database, Writer
from app.infra.errors import Unavailable
from modelkin.errors import ModelkinError

__all__ = ["GroupCommit"]

T = TypeVar("T")
R = TypeVar("R")


class _Pending(Generic[T, R]):
    """A write that a thread waits for: in the end it has an answer or an error."""

    def __init__(self, item: T) -> None:
        self.item = item
        self.answer: R | None = None
        self.error: Exception | None = None
        self.done = False


class GroupCommit(Generic[T, R]):
    """Writes for many threads at once, for each as if it were alone.

    Args:
        database: receives the writes.
        act: carries out writes, in one transaction and in the order of their arrival, and returns
            their results. If it raises, each is carried out alone; not so if what fails is the
            commit, or comes after it: then they may be stored.
        abandon: called for a write that certainly is not committed, and will not be tried again.
        max_batch_size: writes that share a transaction.
    """

    def __init__(
        self,
        database: Database,
        act: Callable[[Writer, Sequence[T]], Sequence[R]],
        *,
        abandon: Callable[[T], None] | None = None,
        max_batch_size: int = 64,
    ) -> None:
        self._database = database
        self._act = act
        self._abandon = abandon
        self._max_batch_size = max_batch_size
        self._waiting: deque[_Pending[T, R]] = deque()
        self._writing = threading.Lock()

    @property
    def waiting(self) -> int:
        """The number of writes that wait for a transaction."""
        return len(self._waiting)

    def do(self, item: T) -> R:
        """Return the result of ``act`` once it is committed; if it raises, nothing is written."""
        write: _Pending[T, R] = _Pending(item)
        self._waiting.append(write)
        try:
            with self._writing:
                while not write.done:
                    self._write_next()
        except BaseException:
            self._withdraw(write)
            raise
        if write.error is not None:
            raise write.error
        return write.answer  # type: ignore[return-value]  # done, and without an error

    def _write_next(self) -> None:
        """Write the next batch; whatever ends this thread meanwhile, all of the batch get an end.

        Raises:
            Unavailable: no write waits, so that of this thread was lost with an interrupted batch.
        """
        batch: list[_Pending[T, R]] = []
        try:
            while self._waiting and len(batch) < self._max_batch_size:
                batch.append(self._waiting.popleft())
            if not batch:
                raise _interruption_error()
            self._write(batch)
        except BaseException:
            self._end(batch, _interruption_error(), abandoned=True)
            raise

    def _withdraw(self, write: _Pending[T, R]) -> None:
        """Take back a write whose thread ends before any batch has it."""
        with suppress(ValueError):
            self._waiting.remove(write)
            self._end([write], _interruption_error(), abandoned=True)

    def _write(self, batch: list[_Pending[T, R]]) -> Unavailable | None:
        """Write the batch; if that fails, write each alone: one error affects no other thread.

        If a lock is held or the disk is full, writing each alone would fail, too. Then all get this
        error, and no thread waits for the lock again.

        Returns:
            The error of a database that cannot serve this now, or None.
        """
        refused = False
        rolled_back = threading.Event()
        try:
            with self._database.writing() as session:
                session.after_rollback(rolled_back.set)
                try:
                    answers = self._act(session, [write.item for write in batch])
                except ModelkinError:  # its own: the database's are of its driver in here
                    refused = True
                    raise
            # The commit is over: from here on all of these are stored.
            for write, answer in zip(batch, answers, strict=True):
                write.answer, write.done = answer, True
        except Exception as error:
            unavailable = error if isinstance(error, Unavailable) and not refused else None
            if unavailable is None and len(batch) > 1 and rolled_back.is_set():
                self._write_each(batch)
                return None
            self._end(batch, error, abandoned=rolled_back.is_set())
            return unavailable
        except BaseException:  # SystemExit or KeyboardInterrupt, in the thread that writes for all
            self._end(batch, _interruption_error(), abandoned=rolled_back.is_set())
            raise
        return None

    def _write_each(self, batch: list[_Pending[T, R]]) -> None:
        """Write for each alone, as long as the database can serve any."""
        for place, write in enumerate(batch, 1):
            if (error := self._write([write])) is not None:
                self._end(batch[place:], error, abandoned=True)
                return

    def _end(self, batch: list[_Pending[T, R]], error: Exception, *, abandoned: bool) -> None:
        """Give the error to every write that is not done, each with its own traceback."""
        for write in [write for write in batch if not write.done]:
            if abandoned and self._abandon is not None:
                self._abandon(write.item)
            write.error = error if len(batch) == 1 else copy.copy(error)
            write.done = True


def _interruption_error() -> Unavailable:
    """The error of the writes whose batch ended with the thread that wrote it."""
    return Unavailable("the thread that wrote this among others was ended: try again")
