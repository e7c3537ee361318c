"""Memory budgets for request bodies, for what they decode to, and for large answers.

A few kilobytes may decode to gigabytes, and many requests may arrive at once. So a request reserves
memory before it uses it, waits for others to release theirs, and is a 503 if that takes too long.
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

_POLL_INTERVAL_S = 0.02
"""Seconds between two attempts of a waiting request, on a thread or on the loop."""


class Budget:
    """Bytes that all requests together may hold at a time.

    Args:
        limit: in bytes. A request that needs more goes on once no other request holds any.
        timeout: seconds to wait for other requests.
    """

    def __init__(self, limit: int, timeout: float) -> None:
        self.limit = limit
        self.timeout = timeout
        self._lock = threading.Lock()
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes that requests hold now."""
        return self._held

    def take(self, size: int, mine: int) -> bool:
        """Reserve ``size`` more bytes for a request that holds ``mine``, if so many are free."""
        with self._lock:
            if self._held + size > self.limit and self._held > mine:
                return False
            self._held += size
            return True

    def give(self, size: int) -> None:
        """Release bytes."""
        with self._lock:
            self._held -= size


@dataclass(frozen=True, slots=True)
class Budgets:
    """Three budgets: for bodies as received, for what they decode to, and for large answers.

    A request reserves once from the second, and then nothing more from the first. So no request
    waits for one that waits. None of those that reserve from the third has a body.
    """

    bodies: Budget
    decoded: Budget
    answers: Budget

    @contextmanager
    def holding(self) -> Iterator[tuple[Reservation, Reservation]]:
        """The reservations of one request in both budgets, released at the end of the block."""
        bodies, decoded = Reservation(self.bodies), Reservation(self.decoded)
        try:
            yield bodies, decoded
        finally:
            bodies.release()
            decoded.release()

    @contextmanager
    def answering(self) -> Iterator[Reservation]:
        """The reservation of one answer, released at the end of the block."""
        answer = Reservation(self.answers)
        try:
            yield answer
        finally:
            answer.release()


class Reservation:
    """The part of a budget that one request holds, until it is released."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._size = 0

    async def take_in_turn(self, size: int) -> None:
        """Reserve bytes on the event loop; :class:`Unavailable` if that takes too long."""
        deadline = time.monotonic() + self._budget.timeout
        while not self._took(size):
            _require_time(deadline)
            await asyncio.sleep(_POLL_INTERVAL_S)

    def take(self, size: int) -> None:
        """Reserve bytes on a thread; :class:`Unavailable` if that takes too long."""
        deadline = time.monotonic() + self._budget.timeout
        while not self._took(size):
            _require_time(deadline)
            time.sleep(_POLL_INTERVAL_S)

    def release(self) -> None:
        """Release all bytes."""
        self._budget.give(self._size)
        self._size = 0

    def _took(self, size: int) -> bool:
        taken = self._budget.take(size, self._size)
        if taken:
            self._size += size
        return taken


def _require_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise Unavailable(
            "the service has no memory left for bodies and answers of this size just now: try "
            "again, or raise MODELKIN_MAX_INFLIGHT_BODY_BYTES"
        )
