"""``BackgroundUploader``: uploads in a thread of their own, so training never waits for them.

Few uploads wait at a time, and the newest stay. A failure becomes a line of the log, the first of a
series a warning. The caller decides what a task uploads.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from modelkin.errors import ApiError, ConnectionFailed, InvalidParameter, ModelkinError

__all__ = ["MAX_QUEUED_UPLOADS", "UPLOADER_THREAD", "BackgroundUploader", "check_flush_seconds"]

Task = Callable[[], object]

log = logging.getLogger("modelkin.integrations")

MAX_QUEUED_UPLOADS: Final = 4
"""How many tasks may wait beside the running one; beyond that the oldest are dropped."""
RETRY_INTERVAL_S: Final = 30.0
"""Seconds until a task that failed for now is tried again, if no other task comes before."""
HURRIED_FLUSH_S: Final = 1.0
"""Seconds that :meth:`BackgroundUploader.close` waits in a hurry."""
UPLOADER_THREAD: Final = "modelkin-uploader"
"""What the thread of an uploader is called, in a debugger for one."""
_TRANSIENT_STATUSES: Final = frozenset({408, 429})
"""Refusals that may be over at the next try, like every 5xx."""


def check_flush_seconds(seconds: float) -> float:
    """How long the end of a training waits for uploads, as given.

    Raises:
        InvalidParameter: negative, not a number, or longer than a thread can wait.
    """
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise InvalidParameter(
            f"flush_seconds must be 0 or more seconds, not {seconds!r}", field="flush_seconds"
        )
    return seconds


class BackgroundUploader:
    """A queue of named tasks and one thread that runs them in order.

    A task that fails because the service is away is kept and tried again; a refused one is not. Of
    two waiting tasks of one name only the newer runs.

    Args:
        flush_seconds: how long :meth:`close` waits at most.
        retry_interval_s: seconds between two tries of a task that failed for now.

    Raises:
        InvalidParameter: ``flush_seconds`` is out of its range.
    """

    def __init__(self, *, flush_seconds: float, retry_interval_s: float = RETRY_INTERVAL_S) -> None:
        self._flush_seconds = check_flush_seconds(flush_seconds)
        self._retry_interval_s = retry_interval_s
        self._changed = threading.Condition()
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._running: str | None = None
        self._closing = self._last_try = False
        self._warned = False
        self._thread: threading.Thread | None = None

    def submit(self, name: str, task: Task) -> None:
        """Queue a task and return at once.

        Args:
            name: names the task in the log, and replaces a waiting task of that name.
            task: any exception that it raises is logged.
        """
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
            hurry: wait for a second at most, because the training failed.

        Returns:
            Whether no task had to be dropped because the service was away.
        """
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
        """Log a failure, queue the task again if another try may succeed; False to stop."""
        with self._changed:
            name, self._running = self._running or "", None
            transient = _is_transient(error)
            self._log_failure(name, error, transient)
            if not transient:
                return True
            if name not in self._tasks:  # else a newer one waits already
                self._tasks[name] = task
                self._tasks.move_to_end(name, last=False)
                self._drop_oldest()
            if not self._closing:
                self._changed.wait(self._retry_interval_s)
            return not self._last_try

    def _log_failure(self, name: str, error: Exception, transient: bool) -> None:
        """Log one warning, and no second one until a task has succeeded again."""
        expected = isinstance(error, ModelkinError)  # any other is a bug, logged with its traceback
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
