"""``Polling``: the pauses between two requests for a merge."""

from __future__ import annotations

import logging
import time
from typing import Final

from modelkin.errors import ModelkinError
from modelkin.types.merges import Merge

__all__ = ["Polling"]

log = logging.getLogger("modelkin.client")

_FIRST_PAUSE_S: Final = 0.2
_PAUSE_GROWTH: Final = 1.5
_MAX_PAUSE_S: Final = 5.0
_MAX_OUTAGE_S: Final = 300.0


class Polling:
    """The pauses between two requests for a merge: they grow while nothing changes."""

    def __init__(self) -> None:
        self._revision = 0
        self._pause = _FIRST_PAUSE_S
        self._answered = time.monotonic()
        self._said: str | None = None

    def after(self, merge: Merge) -> float:
        """Seconds until the next request."""
        self._answered, self._said = time.monotonic(), None
        if merge.revision != self._revision:
            self._revision, self._pause = merge.revision, _FIRST_PAUSE_S
        return self._next_pause()

    def after_failure(self, error: ModelkinError) -> float:
        """Seconds until the next request to a carrier that does not answer now; says why once.

        Raises:
            ModelkinError: the given error, once it has not answered for five minutes.
        """
        left = _MAX_OUTAGE_S - (time.monotonic() - self._answered)
        if left < 0:
            raise error
        if str(error) != self._said:
            self._said = str(error)
            log.warning("no answer now, this party waits %.0f s more at most: %s", left, error)
        return self._next_pause()

    def _next_pause(self) -> float:
        pause, self._pause = self._pause, min(self._pause * _PAUSE_GROWTH, _MAX_PAUSE_S)
        return pause
