"""``Pauses``: the times until which hubs that limit requests are not asked again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

__all__ = ["Pauses"]


class Pauses:
    """What this process knows of the limits of hubs: whoever else would ask one waits, too.

    Args:
        now: a clock of seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until: dict[Hashable, float] = {}
        self._lock = threading.Lock()

    def note(self, client: Hashable, seconds: float) -> None:
        """Pause for some seconds; a longer pause stays.

        Args:
            client: who is limited: a hub, and the token that it is asked with.
        """
        with self._lock:
            now = self._now()
            self._until = {known: until for known, until in self._until.items() if until > now}
            self._until[client] = max(self._until.get(client, 0.0), now + seconds)

    def left(self, client: Hashable) -> float:
        """The seconds until the hub may be asked; 0 for now."""
        with self._lock:
            return max(0.0, self._until.get(client, 0.0) - self._now())
