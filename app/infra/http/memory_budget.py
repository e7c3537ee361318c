"""Memory for what strangers send: budgets for all bodies at a time and what they decode to.

A few kilobytes may honestly mean gigabytes, and many may come at once. So a request takes the bytes
it needs before it has them, waits for others to give theirs back, and is a 503 if that takes long.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.errors import Unavailable

__all__ = ["Budget", "Budgets", "Reservation"]

_STEP = 0.02
"""Seconds between two looks of one who waits, on a thread or on the loop."""


class Budget:
    """Bytes that requests may hold at a time, in all.

    Args:
        limit: of bytes. A request that alone needs more goes on once nobody else holds any.
        patience: seconds to wait for others.
    """

    def __init__(self, limit: int, patience: float) -> None:
        self.limit = limit
        self.patience = patience
        self._lock = threading.Lock()
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes that requests hold now."""
        return self._held

    def take(self, size: int, mine: int) -> bool:
        """Take ``size`` more bytes for one who holds ``mine``, if there are so many."""
        with self._lock:
            if self._held + size > self.limit and self._held > mine:
                return False
            self._held += size
            return True

    def give(self, size: int) -> None:
        """Give bytes back."""
        with self._lock:
            self._held -= size


@dataclass(frozen=True, slots=True)
class Budgets:
    """For bodies as they come, and for what they decode to.

    Whoever takes of the second takes once, and asks the first for nothing more: nobody waits for
    one who waits.
    """

    bodies: Budget
    decoded: Budget

    @contextmanager
    def holding(self) -> Iterator[tuple[Reservation, Reservation]]:
        """What one request holds of each, all of it given back in the end."""
        bodies, decoded = Reservation(self.bodies), Reservation(self.decoded)
        try:
            yield bodies, decoded
        finally:
            bodies.release()
            decoded.release()


class Reservation:
    """What one request holds of the budget, until it is released."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._size = 0

    async def take_in_turn(self, size: int) -> None:
        """Take bytes on the loop; :class:`Unavailable` if others hold them for too long."""
        deadline = time.monotonic() + self._budget.patience
        while not self._took(size):
            _require_patience(deadline)
            await asyncio.sleep(_STEP)

    def take(self, size: int) -> None:
        """The same on a thread."""
        deadline = time.monotonic() + self._budget.patience
        while not self._took(size):
            _require_patience(deadline)
            time.sleep(_STEP)

    def release(self) -> None:
        """Give everything back."""
        self._budget.give(self._size)
        self._size = 0

    def _took(self, size: int) -> bool:
        taken = self._budget.take(size, self._size)
        if taken:
            self._size += size
        return taken


def _require_patience(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise Unavailable(
            "the service has no memory left for bodies of this size just now: try again, or raise "
            "MODELKIN_MAX_INFLIGHT_BODY_BYTES"
        )
