"""Dependencies of endpoints: transactions, database slots, page limits and cursors.

A writer's exit runs when the endpoint has returned and before the answer leaves
(``scope="function"``): what is acknowledged is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, Query
from fastapi.concurrency import run_in_threadpool

from app.errors import Unavailable
from app.infra.db.database import Database, Reader, Writer
from app.infra.http.services import Service

__all__ = [
    "Cursor",
    "K",
    "Limit",
    "Reading",
    "ConnectionSlot",
    "ConnectionSlots",
    "Writing",
]


_MAX_THREADS = 40
"""Request threads: anyio's default."""


class ConnectionSlots:
    """Slots for the requests that may hold connections at a time, two at most each.

    Fewer than request threads and than half the connections, so that there is always a thread and
    a connection for one of them to go on with: requests that hold a connection and wait for a
    thread, while the threads wait for connections, would all time out.

    Args:
        connections: of the database's pool.
        timeout: seconds that a request waits for a slot.
    """

    def __init__(self, connections: int, timeout: float) -> None:
        self._free = asyncio.Semaphore(min(_MAX_THREADS - 8, (connections - 8) // 2))
        self._timeout = timeout

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot; waits for it without a thread.

        Raises:
            Unavailable: none became free in time.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError as error:
            raise Unavailable(
                f"other requests have held all connections to the database for "
                f"{self._timeout:g} seconds"
            ) from error
        try:
            yield
        finally:
            self._free.release()


async def _slot(slots: Service[ConnectionSlots]) -> AsyncIterator[None]:
    async with slots.slot():
        yield


ConnectionSlot = Annotated[None, Depends(_slot, scope="function")]


async def _reading(database: Service[Database], _: ConnectionSlot) -> AsyncIterator[Reader]:
    """A read transaction that begins with the first query, which runs in a thread.

    It ends in a thread too, unless the endpoint has ended it: the event loop never waits for a
    database.
    """
    with database.reading() as session:
        try:
            yield session
        finally:
            if session.in_transaction():
                await run_in_threadpool(session.rollback)


def _writing(database: Service[Database], _: ConnectionSlot) -> Iterator[Writer]:
    with database.writing() as session:
        yield session


Reading = Annotated[Reader, Depends(_reading, scope="function")]
Writing = Annotated[Writer, Depends(_writing, scope="function")]


K = Annotated[int, Query(ge=1, le=1000, description="how many")]
Limit = Annotated[int, Query(ge=1, le=1000, description="how many on a page")]
Cursor = Annotated[str | None, Query(description="the `next_cursor` of the page before")]
