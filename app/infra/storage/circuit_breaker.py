"""A circuit breaker: a server that is down costs one wait, not one for every request.

It never sleeps and never retries.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["CircuitBreaker"]


class CircuitBreaker:
    """Closed while calls succeed; open for ``pause`` seconds after a failure.

    After the pause one call at a time may try; other calls are still refused until it succeeds.

    Args:
        pause: the seconds for which it stays open.
        clock: a clock in seconds that never goes back.
    """

    def __init__(self, pause: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause = pause
        self._clock = clock
        self._lock = threading.Lock()
        self._open_until: float | None = None

    def allows(self) -> bool:
        """Whether to call now. An allowed caller reports with ``succeeded`` or ``failed``."""
        with self._lock:
            if self._open_until is None:
                return True
            if self._clock() < self._open_until:
                return False
            self._open_until = self._clock() + self._pause  # this one tries; the others wait on
            return True

    def succeeded(self) -> None:
        """The server answered: allow all calls."""
        with self._lock:
            self._open_until = None

    def failed(self) -> None:
        """The server did not answer: refuse calls for a while."""
        with self._lock:
            self._open_until = self._clock() + self._pause
