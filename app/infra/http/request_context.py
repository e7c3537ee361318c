"""``RequestContext``: the request of an endpoint, and its transactions.

An endpoint opens its transactions itself, ``with context.reading() as session:``. So its code shows
what happens while a connection is held, and what happens before and after.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Annotated

from fastapi import Depends, Request

from app.infra.db.database import Database, Reader, Writer
from app.infra.deadlines import NEVER, Deadline
from app.infra.http.services import services_of

__all__ = ["OpenContext", "RequestContext"]


class RequestContext:
    """One request, once it has been read.

    Attributes:
        request: the head of the request; the body was read before.
        deadline: the end of the computation of its answer. The time runs from the moment when the
            request gets its turn (see ``turns``), and ends at once if the client of a heavy
            question has left.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.deadline: Deadline = NEVER

    def reading(self) -> AbstractContextManager[Reader]:
        """A consistent view of the database, which begins with the first query."""
        return self._database.reading()

    def writing(self) -> AbstractContextManager[Writer]:
        """A change of the database: it is durable when the block ends, and nothing if it raises."""
        return self._database.writing()

    @property
    def _database(self) -> Database:
        return services_of(self.request)[Database]


async def _open(request: Request) -> RequestContext:
    return RequestContext(request)


OpenContext = Annotated[RequestContext, Depends(_open)]
"""The context of an operation that needs no key."""
