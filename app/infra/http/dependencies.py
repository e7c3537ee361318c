"""What endpoints are given: transactions, the space of the path, checked names.

A writer's exit runs when the endpoint has returned and before the answer leaves
(``scope="function"``): what is acknowledged is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool

from app.auth.dependencies import Handle, ReadingTenant, WritingTenant
from app.errors import PreconditionRequired, Unavailable
from app.infra.db.database import Reader, Writer

__all__ = [
    "Cursor",
    "Handle",
    "ReadingTenant",
    "WritingTenant",
    "IfMatch",
    "K",
    "Limit",
    "Reading",
    "RequiredMatch",
    "ConnectionSlot",
    "Writing",
]


async def _turn(request: Request, resources: Handle) -> AsyncIterator[None]:
    """Waits, without a thread, until this request may hold connections (``app.main.turns``)."""
    turns: asyncio.Semaphore = request.app.state.turns
    seconds = resources.settings.database_timeout
    try:
        async with asyncio.timeout(seconds):
            await turns.acquire()
    except TimeoutError as error:
        raise Unavailable(
            f"as many requests as may ask the database have been at it for {seconds:g} seconds"
        ) from error
    try:
        yield
    finally:
        turns.release()


ConnectionSlot = Annotated[None, Depends(_turn, scope="function")]


async def _reading(resources: Handle, _: ConnectionSlot) -> AsyncIterator[Reader]:
    """A view that begins with the first question, which is asked in a thread. It ends in one too,
    unless whoever asked has ended it: nothing here ever waits for a database in the event loop.
    """
    with resources.database.reading() as session:
        try:
            yield session
        finally:
            if session.in_transaction():
                await run_in_threadpool(session.rollback)


def _writing(resources: Handle, _: ConnectionSlot) -> Iterator[Writer]:
    with resources.database.writing() as session:
        yield session


Reading = Annotated[Reader, Depends(_reading, scope="function")]
Writing = Annotated[Writer, Depends(_writing, scope="function")]


K = Annotated[int, Query(ge=1, le=1000, description="how many")]
Limit = Annotated[int, Query(ge=1, le=1000, description="how many on a page")]
Cursor = Annotated[str | None, Query(description="the `next_cursor` of the page before")]


async def _required_match(
    if_match: Annotated[
        str | None,
        Header(description="the model's `ETag` that this changes, else 412; 428 without it"),
    ] = None,
) -> str:
    if if_match is None:
        raise PreconditionRequired(
            "this changes one revision of the model and no other: send its ETag as If-Match"
        )
    return if_match


RequiredMatch = Annotated[str, Depends(_required_match)]
IfMatch = Annotated[
    str | None,
    Header(description="change the model only if its `ETag` is this one, else 412"),
]
