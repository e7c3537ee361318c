"""``BackgroundUploader``: uploads in a thread of their own, so training never waits for them.

Few uploads wait at a time, and the newest stay. A failure becomes a line of the log; the first of a
series is a warning. The caller decides what a task uploads.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from modelkin.errors import ApiError, ConnectionFailed, InvalidParameter, ModelkinError

__all__ = ["MAX_QUEUED_UPLOADS", "UPLOADER_THREAD", "BackgroundUploader", "check_flush_seconds"]

Task = Callable[[], object]

log = logging.getLogger("modelkin.integrations")

MAX_QUEUED_UPLOADS: Final = 4
"""The number of tasks that may wait beside the running one; beyond it the oldest are dropped."""
RETRY_INTERVAL_S: Final = 30.0
"""Seconds until a task with a transient failure is tried again, if no other task comes before."""
HURRIED_FLUSH_S: Final = 1.0
"""Seconds that :meth:`BackgroundUploader.close` waits in a hurry."""
UPLOADER_THREAD: Final = "modelkin-uploader"
"""The name of an uploader's thread, for a debugger."""
_TRANSIENT_STATUSES: Final = frozenset({408, 429})
"""Refusals that may have ended at the next try, like every 5xx."""


def check_flush_seconds(seconds: float) -> float:
    """Check the seconds that the end of a training waits for uploads, and return them.

    Raises:
        InvalidParameter: they are negative, not a number, or longer than a thread can wait.
    """
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise InvalidParameter(
            f"flush_seconds must be 0 or more seconds, not {seconds!r}", field="flush_seconds"
        )
    return seconds


class BackgroundUploader:
    """A queue of named tasks and one thread that runs them in order.

    A task that fails because the service is away is kept and tried again; a refused one is not. If
    two tasks of one name wait, only the newer runs.

    Args:
        flush_seconds: the longest time that :meth:`close` waits.
        retry_interval_s: seconds between two tries of a task with a transient failure.

    Raises:
        InvalidParameter: ``flush_seconds`` is out of its range.
    """

    def __init__(self, *, flush_seconds: float, retry_interval_s: float = RETRY_INTERVAL_S) -> None:
        self._flush_seconds = check_flush_seconds(flush_seconds)
        self._retry_interval_s = retry_interval_s
        self._begin()

    def _begin(self) -> None:
        """Begin with an empty queue, and without a thread."""
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._running: str | None = None
        self._closing = self._last_try = False
        self._warned = False
        self._thread: threading.Thread | None = None

    def submit(self, name: str, task: Task) -> None:
        """Queue a task and return at once.

        Args:
            name: the task's name in the log; a waiting task of that name is replaced.
            task: runs in the background thread; any exception that it raises is logged.
        """
        self._leave_parent()
        with self._changed:
            self._tasks.pop(name, None)
            self._tasks[name] = task
            self._drop_oldest()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name=UPLOADER_THREAD, daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def close(self, *, hurry: bool = False) -> bool:
        """Try the waiting tasks once more, for ``flush_seconds`` at most, and drop the rest.

        Args:
            hurry: whether to wait only a second, because the training failed.

        Returns:
            Whether no task had to be dropped because the service was away.
        """
        self._leave_parent()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            timeout_s = min(self._flush_seconds, HURRIED_FLUSH_S) if hurry else self._flush_seconds
            self._thread.join(timeout_s)
        with self._changed:
            dropped = [*([self._running] if self._running else []), *self._tasks]
            self._tasks.clear()
        if dropped:
            log.warning("dropped, the service did not answer in time: %s", ", ".join(dropped))
        return not dropped

    def _leave_parent(self) -> None:
        """Leave queue and thread to the process that this one was forked from."""
        if self._process != os.getpid():
            self._begin()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except Exception as error:  # a failed upload must never end the training
                if not self._continue_after(error, task):
                    return
            else:
                with self._changed:
                    self._running, self._warned = None, False

    def _next(self) -> Task | None:
        """Wait for the next task; None once the queue is empty and closed."""
        with self._changed:
            while not self._tasks:
                if self._closing:
                    return None
                self._changed.wait()
            self._running, task = self._tasks.popitem(last=False)
            self._last_try = self._closing
            return task

    def _continue_after(self, error: Exception, task: Task) -> bool:
        """Log a failure; queue the task again if another try may succeed. Return False to stop."""
        with self._changed:
            name, self._running = self._running or "", None
            transient = _is_transient(error)
            self._log_failure(name, error, transient)
            if not transient:
                return True
            if name not in self._tasks:  # else a newer task waits
                self._tasks[name] = task
                self._tasks.move_to_end(name, last=False)
                self._drop_oldest()
            if not self._closing:
                self._changed.wait(self._retry_interval_s)
            return not self._last_try

    def _log_failure(self, name: str, error: Exception, transient: bool) -> None:
        """Log one warning, and no second one until a task has succeeded again."""
        expected = isinstance(error, ModelkinError)  # other errors are bugs: log a traceback
        log.log(
            logging.DEBUG if self._warned else logging.WARNING,
            "%s is not stored%s: %s",
            name,
            " yet" if transient else "",
            error,
            exc_info=None if expected else error,
        )
        self._warned = True

    def _drop_oldest(self) -> None:
        while len(self._tasks) > MAX_QUEUED_UPLOADS:
            dropped, _ = self._tasks.popitem(last=False)
            log.warning("dropped to make room for newer uploads: %s", dropped)


def _is_transient(error: Exception) -> bool:
    """Whether the same request may succeed at another time."""
    if isinstance(error, ApiError):
        return error.status >= 500 or error.status in _TRANSIENT_STATUSES
    return isinstance(error, ConnectionFailed)
