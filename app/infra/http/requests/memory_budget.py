"""Memory budgets for request bodies, for what they decode to, and for large answers.

A few kilobytes may decode to gigabytes, and many requests may arrive at once. So a request reserves
memory before it uses it, waits for others to release theirs, and is a 503 if that takes too long.
The requests of one tenant wait for each other, and hardly for requests of other tenants.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from app.infra.errors import Unavailable

__all__ = ["Budget", "Budgets", "Reservation"]


class Budget:
    """Bytes that all requests together may hold at a time.

    Among waiting tenants the one that holds least is served first; the requests of a tenant are
    served in order. A request beyond the share of its tenant goes on while its tenant holds nothing
    else, one such request at a time; against the limit it counts as the share. So all together
    never hold more than the limit and one request.

    Args:
        limit: the most bytes.
        timeout: the seconds to wait for other requests.
        share: the share of the limit that one tenant may hold, above 0 and at most 1.
    """

    def __init__(self, limit: int, timeout: float, *, share: float = 1.0) -> None:
        self.limit = limit
        self.timeout = timeout
        self._share = int(limit * share)
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiter]] = {}

    @property
    def held(self) -> int:
        """Bytes that requests hold now."""
        return self._held.total()

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return sum(map(len, self._waiting.values()))

    def ask(self, waiter: _Waiter) -> None:
        """Grant what a request needs now or as soon as it can be."""
        with self._lock:
            self._waiting.setdefault(waiter.hold.tenant, deque()).append(waiter)
            self._hand_out()

    def forget(self, waiter: _Waiter) -> None:
        """Stop the wait of a request; a request that was granted keeps its memory."""
        with self._lock:
            if not waiter.granted:
                self._leave(waiter)
                self._hand_out()  # those behind it may need less

    def give(self, tenant: str, size: int) -> None:
        """Release bytes."""
        with self._lock:
            self._held[tenant] -= size
            if not self._held[tenant]:
                del self._held[tenant]
            self._hand_out()

    def _hand_out(self) -> None:
        while (waiter := self._next()) is not None:
            self._leave(waiter)
            self._held[waiter.hold.tenant] += waiter.size
            waiter.grant()

    def _next(self) -> _Waiter | None:
        """The first that fits, of the first request of each tenant."""
        heads = (queue[0] for queue in self._waiting.values())
        order = sorted(heads, key=lambda waiter: self._held[waiter.hold.tenant])
        return next(filter(self._fits, order), None)

    def _fits(self, waiter: _Waiter) -> bool:
        tenant, before = waiter.hold.tenant, self._held[waiter.hold.tenant]
        after = before + waiter.size
        others = [held for each, held in self._held.items() if each != tenant]
        if after > self._share and (
            before > waiter.hold.size or max(others, default=0) > self._share
        ):
            return False
        return sum(min(held, self._share) for held in [*others, after]) <= self.limit

    def _leave(self, waiter: _Waiter) -> None:
        queue = self._waiting[waiter.hold.tenant]
        queue.remove(waiter)
        if not queue:
            del self._waiting[waiter.hold.tenant]


@dataclass(frozen=True, slots=True)
class Budgets:
    """Three budgets: for bodies as received, for what they decode to, and for large answers.

    A request reserves once from the second, and then nothing more from the first. It reserves from
    the third before it holds a turn, or a write lock. So no request waits for a waiting request.
    """

    bodies: Budget
    decoded: Budget
    answers: Budget

    @contextmanager
    def holding(self, tenant: str) -> Iterator[tuple[Reservation, Reservation]]:
        """The reservations of one request in both budgets, released at the end of the block."""
        bodies, decoded = Reservation(self.bodies, tenant), Reservation(self.decoded, tenant)
        try:
            yield bodies, decoded
        finally:
            bodies.release()
            decoded.release()

    @contextmanager
    def answering(self, tenant: str) -> Iterator[Reservation]:
        """The reservation of one answer, released at the end of the block."""
        answer = Reservation(self.answers, tenant)
        try:
            yield answer
        finally:
            answer.release()


class Reservation:
    """The part of a budget that one request holds, until it is released.

    Attributes:
        size: the reserved bytes.
    """

    def __init__(self, budget: Budget, tenant: str) -> None:
        self.tenant = tenant
        self.size = 0
        self._budget = budget

    async def take_in_turn(self, size: int) -> None:
        """Reserve bytes on the event loop; :class:`Unavailable` if that takes too long."""
        granted = asyncio.Event()
        loop = asyncio.get_running_loop()
        waiter = _Waiter(self, size, partial(loop.call_soon_threadsafe, granted.set))
        self._budget.ask(waiter)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._budget.timeout):
                    await granted.wait()
        finally:
            self._budget.forget(waiter)
        self._require(waiter)

    def take(self, size: int) -> None:
        """Reserve bytes on a thread; :class:`Unavailable` if that takes too long."""
        granted = threading.Event()
        waiter = _Waiter(self, size, granted.set)
        self._budget.ask(waiter)
        granted.wait(self._budget.timeout)
        self._budget.forget(waiter)
        self._require(waiter)

    def keep(self, size: int) -> None:
        """Release all but ``size`` bytes."""
        if size < self.size:
            self._budget.give(self.tenant, self.size - size)
            self.size = size

    def release(self) -> None:
        """Release all bytes."""
        self.keep(0)

    def _require(self, waiter: _Waiter) -> None:
        if not waiter.granted:
            raise Unavailable(
                f"the service has no memory left for bodies and answers of this size just now: try "
                f"again, or raise MODELKIN_MAX_INFLIGHT_BODY_BYTES, of which "
                f"{self._budget.limit} bytes are for this"
            )


class _Waiter:
    """A request that waits for further bytes."""

    def __init__(self, hold: Reservation, size: int, wake: Callable[[], object]) -> None:
        self.hold = hold
        self.size = size
        self.granted = False
        self._wake = wake

    def grant(self) -> None:
        """Add the bytes to its reservation, and let it go on."""
        self.hold.size += self.size
        self.granted = True
        self._wake()
