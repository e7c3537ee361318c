"""Dependencies of endpoints: transactions, turns, page limits and cursors.

A transaction ends in the thread of its endpoint, before the answer leaves: what is acknowledged is
committed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Annotated

from fastapi import Depends, Query, Request

from app.deadlines import Deadline
from app.infra.db.database import Database, Reader, Writer
from app.infra.http.endpoint_threads import in_endpoint_thread
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


@in_endpoint_thread
def _reading(database: Service[Database], _: Turn) -> AbstractContextManager[Reader]:
    """A read transaction that begins with the first query."""
    return database.reading()


@in_endpoint_thread
def _writing(database: Service[Database], _: Turn) -> AbstractContextManager[Writer]:
    return database.writing()


Reading = Annotated[Reader, Depends(_reading)]
Writing = Annotated[Writer, Depends(_writing)]


K = Annotated[int, Query(ge=1, le=1000, description="how many")]
Limit = Annotated[int, Query(ge=1, le=1000, description="how many on a page")]
Cursor = Annotated[str | None, Query(description="the `next_cursor` of the page before")]
