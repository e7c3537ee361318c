"""Turns: the number of requests that work at a time, and their order.

Each request holds one turn, of the pool of its kind of work, and waits for it without a thread and
without a connection. In each pool every tenant that waits gets the next turn in rotation, so the
requests of one tenant wait for each other, and hardly for requests of other tenants.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal, TypeAlias

from fastapi import Request
from starlette.datastructures import QueryParams

from app.infra.deadlines import Deadline
from app.infra.errors import ClientLeft, Unavailable

__all__ = ["Pool", "TurnKind", "Turns", "asks_for_many", "heavy_if", "tenant_of"]

TurnKind: TypeAlias = Literal["reading", "writing", "heavy", "hooks"]
"""A kind of work: reads, writes, questions that compute for seconds, and deliveries of hubs."""

_MAX_THREADS = 40
"""Request threads: anyio's default."""
_SPARE = 8
"""Threads that no turn takes, and connections: for keys, bodies, jobs and probes."""
_MAX_LIGHT_K = 100
"""A search for more neighbours than this is heavy by any method: it compares thousands."""
_MAX_VERIFIED = 10_000
"""The most sources with separate turns; beyond it, all sources are verified again."""

_WAITED_FOR: Final[Mapping[TurnKind, str]] = {
    "reading": "other reads are",
    "writing": "other writes are",
    "heavy": "other graphs, matrices, exact searches and such are",
    "hooks": "other deliveries of hubs are",
}


class Pool:
    """Turns that tenants share.

    Waiting tenants are served in rotation, once a round; a new tenant is the last of its round.
    While another tenant waits, a tenant gets no more than its share. Unless there is only one turn,
    no tenant gets the last one, so that the next tenant to come finds a turn free.

    Args:
        size: the number of turns.
        share: the share of the turns that one tenant may hold while others wait, above 0 and at
            most 1.
        timeout: the seconds that a request waits.
        work: the work in the other turns, for the message.
    """

    def __init__(self, size: int, *, share: float, timeout: float, work: str = "others") -> None:
        self.size = size
        self._most = max(1, size - 1)
        self._share = min(self._most, max(1, int(size * share)))
        self._timeout = timeout
        self._work = work
        self._held: Counter[str] = Counter()
        self._in_use = 0
        self._last: dict[str, tuple[int, bool]] = {}
        """For each active tenant: the turn counter at its last service or its arrival, and whether
        it was served. The tenant with the smallest entry is next, so a new tenant is behind those
        that have waited longer.
        """
        self._given = 0
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def held(self) -> int:
        """The number of taken turns."""
        return self._in_use

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(
        self, tenant: str, left: asyncio.Future[None] | None = None
    ) -> AsyncIterator[None]:
        """Hold a turn for the duration of the block.

        Args:
            left: a future that is done when the client has hung up.

        Raises:
            Unavailable: no turn became free in time.
            ClientLeft: the client hung up first.
        """
        if not self._take_at_once(tenant):
            await self._take(tenant, left)
        try:
            yield
        finally:
            self._give_back(tenant)

    def _take_at_once(self, tenant: str) -> bool:
        """Take a free turn if no request waits; False if there is none for this tenant."""
        if self._waiting or self._in_use >= self.size or self._held[tenant] >= self._most:
            return False
        self._grant(tenant)
        return True

    def _grant(self, tenant: str) -> None:
        self._held[tenant] += 1
        self._in_use += 1
        self._given += 1
        self._last[tenant] = self._given, True

    async def _take(self, tenant: str, left: asyncio.Future[None] | None) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if left is not None:
            left.add_done_callback(lambda _: granted.cancel())
        self._last.setdefault(tenant, (self._given, False))
        self._waiting.setdefault(tenant, deque()).append(granted)
        self._hand_out()
        try:
            async with asyncio.timeout(self._timeout):
                await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled():
                self._give_back(tenant)  # it came in the moment in which the request gave up
            else:
                self._forget(tenant, granted)
            if left is not None and left.done():
                raise ClientLeft("the client left before its turn had come") from None
            if isinstance(error, TimeoutError):
                raise Unavailable(
                    f"{self._work} served, {self.size} at a time, and this one has waited for "
                    f"{self._timeout:g} seconds: send fewer at a time, and this one again"
                ) from error
            raise

    def _give_back(self, tenant: str) -> None:
        self._held[tenant] -= 1
        self._in_use -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        self._clear(tenant)
        self._hand_out()

    def _forget(self, tenant: str, granted: asyncio.Future[None]) -> None:
        queue = self._waiting[tenant]
        queue.remove(granted)
        if not queue:
            del self._waiting[tenant]
        self._clear(tenant)
        self._hand_out()  # those who waited beside it may take more than a share now

    def _clear(self, tenant: str) -> None:
        """Forget when a tenant was last served, once it holds nothing and waits for nothing."""
        if tenant not in self._held and tenant not in self._waiting:
            self._last.pop(tenant, None)

    def _hand_out(self) -> None:
        """Give the free turns to waiting requests, one tenant after another."""
        while self._waiting and self._in_use < self.size and (tenant := self._next()) is not None:
            queue = self._waiting[tenant]
            granted = next((each for each in queue if not each.done()), None)
            if granted is None:  # they have all given up, and are about to say so
                return
            queue.remove(granted)
            if not queue:
                del self._waiting[tenant]
            self._grant(tenant)
            granted.set_result(None)

    def _next(self) -> str | None:
        """The tenant whose turn it is; None if all waiting tenants hold their share."""
        order = sorted(self._waiting, key=lambda tenant: self._last[tenant])
        for limit in (self._share, self._most):
            for tenant in order:
                if self._held[tenant] < limit:
                    return tenant
        return None


class Turns:
    """A pool for each kind of work.

    All turns together are fewer than request threads and than connections: there is always a thread
    and a connection with which a turn can go on. Requests that hold a connection and wait for a
    thread, while the threads wait for connections, would all time out.

    Args:
        connections: the size of the database's pool.
        share: the share of a pool that one tenant may hold while others wait.
        timeout: the seconds that a request waits for its turn.
        query_timeout: the seconds that a heavy question may compute.
        cores: the number of cores; by default those of this process.
    """

    def __init__(
        self,
        connections: int,
        *,
        share: float,
        timeout: float,
        query_timeout: float,
        cores: int | None = None,
    ) -> None:
        total = min(_MAX_THREADS - _SPARE, connections - _SPARE)
        some = max(1, total // 4)
        known = len(os.sched_getaffinity(0)) if cores is None else cores
        # On two cores a tenant computes one answer at a time: two would hold up all other threads.
        heavy = min(max(2, known), max(1, total // 8))
        sizes: dict[TurnKind, int] = {
            "writing": some,
            "hooks": some,
            "heavy": heavy,
            "reading": max(1, total - 2 * some - heavy),
        }
        self._query_timeout = query_timeout
        self._verified: set[str] = set()
        self._pools: dict[TurnKind, Pool] = {
            kind: Pool(
                size,
                share=share,
                timeout=timeout + 2 * query_timeout if kind == "heavy" else timeout,
                work=_WAITED_FOR[kind],
            )
            for kind, size in sizes.items()
        }

    def of(self, kind: TurnKind) -> Pool:
        """The turns of a kind of work."""
        return self._pools[kind]

    def note_verified(self, source: str) -> None:
        """Note a source that a delivery has verified: its later deliveries take separate turns."""
        if len(self._verified) >= _MAX_VERIFIED:
            self._verified.clear()
        self._verified.add(source)

    def _tenant(self, request: Request, kind: TurnKind) -> str:
        """The tenant whose turn a request takes: its own, or a verified source.

        Callers of hooks have no key, and may name any source: all unverified sources together are
        one tenant.
        """
        source = str(request.path_params.get("source", ""))
        if kind == "hooks" and source in self._verified:
            return source
        return tenant_of(request)

    @asynccontextmanager
    async def turn(self, request: Request, kind: TurnKind) -> AsyncIterator[Deadline]:
        """Hold a turn for a request, with the deadline of what it computes.

        The client of a heavy question that hangs up loses its turn, or its place among waiting
        requests. The body of such a request is read before.
        """
        tenant = self._tenant(request, kind)
        if kind != "heavy":
            async with self._pools[kind].turn(tenant):
                yield Deadline(self._query_timeout)
            return
        async with _hang_up(request) as left, self._pools[kind].turn(tenant, left):
            yield Deadline(self._query_timeout, left.done)


@asynccontextmanager
async def _hang_up(request: Request) -> AsyncIterator[asyncio.Future[None]]:
    """A future that is done when the client has hung up."""
    left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass  # the body of a GET, which has no meaning
        left.set_result(None)

    watching = asyncio.create_task(watch())
    try:
        yield left
    finally:
        watching.cancel()
        await asyncio.wait([watching])


def heavy_if(is_heavy: Callable[[QueryParams], bool]) -> Callable[[QueryParams], TurnKind]:
    """The kind of work of an operation that some query parameters make heavy."""
    return lambda query: "heavy" if is_heavy(query) else "reading"


def asks_for_many(query: QueryParams, *, beside: int = 0) -> bool:
    """Whether comparing ``k`` and ``beside`` more models takes seconds by any method.

    Any text that is not plainly a small number counts as a large number.
    """
    k = query.get("k", "0")
    return not (len(k) <= 3 and k.isdecimal() and int(k) + beside <= _MAX_LIGHT_K)


def tenant_of(request: Request) -> str:
    """The tenant of a request; all requests without a key have one together."""
    identity = getattr(request.state, "identity", None)
    return "" if identity is None else str(identity.tenant.id)
