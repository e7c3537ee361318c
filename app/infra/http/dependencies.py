"""Dependencies of endpoints: transactions, turns, page limits and cursors.

A writer's exit runs when the endpoint has returned and before the answer leaves
(``scope="function"``): what is acknowledged is committed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import Depends, Query, Request
from fastapi.concurrency import run_in_threadpool

from app.deadlines import Deadline
from app.infra.db.database import Database, Reader, Writer
from app.infra.http.services import Service
from app.infra.http.turns import Turns

__all__ = [
    "Cursor",
    "K",
    "Limit",
    "Reading",
    "Turn",
    "Writing",
    "take_turn",
]


async def take_turn(request: Request, turns: Service[Turns]) -> AsyncIterator[Deadline]:
    async with turns.turn(request) as deadline:
        yield deadline


Turn = Annotated[Deadline, Depends(take_turn, scope="function")]
"""The turn of a request, the same for all that it reads and writes, and the deadline of what it
computes in it: see ``turns``.
"""


async def _reading(database: Service[Database], _: Turn) -> AsyncIterator[Reader]:
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


def _writing(database: Service[Database], _: Turn) -> Iterator[Writer]:
    with database.writing() as session:
        yield session


Reading = Annotated[Reader, Depends(_reading, scope="function")]
Writing = Annotated[Writer, Depends(_writing, scope="function")]


K = Annotated[int, Query(ge=1, le=1000, description="how many")]
Limit = Annotated[int, Query(ge=1, le=1000, description="how many on a page")]
Cursor = Annotated[str | None, Query(description="the `next_cursor` of the page before")]
