"""The log of faults: one line each, and once a second for one cause.

A database that is away fails every request in the same way. A thousand tracebacks would repeat it,
and hide the rest of the log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.infra.errors import explain, is_announced
from modelkin.errors import ModelkinError

__all__ = ["FaultLog"]

_INTERVAL_S: Final = 1.0
_MAX_CAUSES: Final = 1000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Cause:
    logged_at: float
    more: int = 0


class FaultLog:
    """Logs faults, each cause once a second. A cause is what the client is shown.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._causes: dict[tuple[str, str], _Cause] = {}
        self._lock = threading.Lock()

    def note(self, error: ModelkinError) -> None:
        """Log a line about ``error``, or count it towards the next one about its cause.

        An outage that its store has announced gets no further line.
        """
        if is_announced(error):
            return
        key, now = (type(error).__name__, str(error)), self._clock()
        with self._lock:
            cause = self._causes.get(key)
            if cause is not None and now - cause.logged_at < _INTERVAL_S:
                cause.more += 1
                return
            before = 0 if cause is None else cause.more
            if len(self._causes) >= _MAX_CAUSES:
                self._causes.clear()
            self._causes[key] = _Cause(now)
        others = f" (and {before} more since the last such line)" if before else ""
        line = " ".join(explain(error).split())
        log.error("%s: %s%s", type(error).__name__, line, others)
