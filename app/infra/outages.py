"""``Outage``: a store that is away says so once in the log, and once that it is back.

Whatever fails for that reason meanwhile, in workers, requests and jobs, adds nothing to it: its
error is ``announced``, and the log leaves records about it out (:class:`WithoutOutages`). The lines
name no host, user or path; the command ``check`` shows the server's own message.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Final

from app.infra.errors import Explanation, is_announced
from app.infra.programs import service_command

__all__ = ["Outage", "WithoutOutages"]

_LEAST_S: Final = 1.0
"""Seconds of an outage at least: a thread may still hold an answer from just before it."""

log = logging.getLogger(__name__)


class Outage:
    """Whether a store is away, as those who use it find out.

    Args:
        store: the store, as the subject of a sentence.
        effect: what follows while it is away.
        clock: seconds that only grow.
    """

    def __init__(
        self, store: str, effect: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._effect, self._clock = store, effect, clock
        self._began: float | None = None
        self._ended = -math.inf
        self._lock = threading.Lock()

    def begin(self, since: float = math.inf) -> None:
        """Note that the store cannot be reached.

        Args:
            since: when the use that fails began. One from before the last outage was over has met
                that one: its connection was lost then.
        """
        with self._lock:
            if self._began is not None or since <= self._ended:
                return
            self._began = self._clock()
        check = service_command("check")
        log.error("%s is away: %s; `%s` says why", self._store, self._effect, check)

    def end(self) -> None:
        """Note that the store has answered."""
        if self._began is None:  # nearly always, and then without the lock
            return
        with self._lock:
            if self._began is None or (lasted := self._clock() - self._began) < _LEAST_S:
                return
            self._began, self._ended = None, self._clock()
        log.warning("%s is back, after %.0f s", self._store, lasted)


class WithoutOutages(logging.Filter):
    """Leaves out records that tell an error whose outage is announced, and tracebacks of such.

    A record with the traceback of another error stays as it is: a bug may show in an outage alone.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether no argument of the record is such an error; cut off its traceback."""
        raised = record.exc_info[1] if record.exc_info else None
        if raised is not None:
            if not is_announced(raised):
                return True
            record.exc_info = record.exc_text = None  # what it says besides may be news
        arguments = record.args if isinstance(record.args, tuple) else ()
        return not any(is_announced(_error_of(each)) for each in arguments)


def _error_of(argument: object) -> BaseException | None:
    if isinstance(argument, Explanation):
        return argument.error
    return argument if isinstance(argument, BaseException) else None
