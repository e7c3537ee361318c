"""``Pusher``: stores things in the background, so that a service that is slow or away never holds
up whoever trains.

Little waits at a time and the newest wins. What it does is the callers'; failures become lines of
the log, the first of each kind as a warning. Nothing here knows what is stored.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from modelkin.errors import ApiError, ConnectionFailed, InvalidParameter, ModelkinError

__all__ = ["WAITING", "Pusher", "check_patience"]

Task = Callable[[], object]

log = logging.getLogger("modelkin.integrations")

WAITING: Final = 4
"""How many tasks may wait, beside the one under way; of more, the oldest are given up."""
AGAIN_AFTER: Final = 30.0
"""Seconds until what failed for now is tried again, if nothing else is to be done before."""
HURRY: Final = 1.0
"""Seconds that :meth:`Pusher.close` waits in a hurry."""
_PASSING: Final = frozenset({408, 429})
"""Refusals that may be over next time, like every 5xx."""


def check_patience(seconds: float) -> float:
    """How long the end of a training waits, as given.

    Raises:
        InvalidParameter: it is no time that one can wait.
    """
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise InvalidParameter(
            f"flush_seconds must be 0 or more seconds, not {seconds!r}", field="flush_seconds"
        )
    return seconds


class Pusher:
    """A queue of named tasks and one thread that does them in order.

    A task that fails because the service is away is kept and tried again; one that is refused is
    not. Of two tasks of one name only the newer is done.

    Args:
        patience: seconds that :meth:`close` waits at most.
        again_after: seconds between tries of what failed for now.

    Raises:
        InvalidParameter: the patience is none.
    """

    def __init__(self, *, patience: float, again_after: float = AGAIN_AFTER) -> None:
        self._patience = check_patience(patience)
        self._again_after = again_after
        self._changed = threading.Condition()
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._under_way: str | None = None
        self._closing = self._last_try = False
        self._warned = False
        self._thread: threading.Thread | None = None

    def submit(self, name: str, task: Task) -> None:
        """Has a task done, soon and elsewhere; returns at once.

        Args:
            name: says in the log what it is, and replaces a task of that name that waits.
            task: what it raises is logged.
        """
        with self._changed:
            self._tasks.pop(name, None)
            self._tasks[name] = task
            self._keep_few()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="modelkin-pusher", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def close(self, *, hurry: bool = False) -> bool:
        """Has what waits tried once more, for as long as its patience lasts.

        Args:
            hurry: for a second at most, where something else has gone wrong.

        Returns:
            Whether nothing is left that the service was away for.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(min(self._patience, HURRY) if hurry else self._patience)
        with self._changed:
            undone = [*([self._under_way] if self._under_way else []), *self._tasks]
            self._tasks.clear()
        if undone:
            log.warning("given up, no service was there for it in time: %s", ", ".join(undone))
        return not undone

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except Exception as error:  # whatever it is, training goes on
                if not self._goes_on_after(error, task):
                    return
            else:
                with self._changed:
                    self._under_way, self._warned = None, False

    def _next(self) -> Task | None:
        """The next task; None when there is none and no more will come."""
        with self._changed:
            while not self._tasks:
                if self._closing:
                    return None
                self._changed.wait()
            self._under_way, task = self._tasks.popitem(last=False)
            self._last_try = self._closing
            return task

    def _goes_on_after(self, error: Exception, task: Task) -> bool:
        with self._changed:
            name, self._under_way = self._under_way or "", None
            passing = _is_passing(error)
            self._tell(name, error, passing)
            if not passing:
                return True
            if name not in self._tasks:  # else a newer one waits already
                self._tasks[name] = task
                self._tasks.move_to_end(name, last=False)
                self._keep_few()
            if not self._closing:
                self._changed.wait(self._again_after)
            return not self._last_try

    def _tell(self, name: str, error: Exception, passing: bool) -> None:
        """One warning, and no more of them until something has succeeded again."""
        # What comes of a fault in a program is told with its traceback.
        known = isinstance(error, ModelkinError)
        log.log(
            logging.DEBUG if self._warned else logging.WARNING,
            "%s is not stored%s: %s",
            name,
            " yet" if passing else "",
            error,
            exc_info=None if known else error,
        )
        self._warned = True

    def _keep_few(self) -> None:
        while len(self._tasks) > WAITING:
            given_up, _ = self._tasks.popitem(last=False)
            log.warning("given up for what is newer: %s", given_up)


def _is_passing(error: Exception) -> bool:
    """Whether the same may succeed another time, with no change to what was asked."""
    if isinstance(error, ApiError):
        return error.status >= 500 or error.status in _PASSING
    return isinstance(error, ConnectionFailed)
