"""Large answers: made in the thread of the request, in memory of the budget, sent piece by piece.

FastAPI would validate and write an answer on the event loop, where nobody else is answered
meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Annotated, Final

from fastapi import Depends, Response
from pydantic import BaseModel
from pydantic_core import to_json

from app.infra.db.pagination import MAX_PAGE_BYTES
from app.infra.http.memory_budget import Budgets, Reservation
from app.infra.http.services import Service

__all__ = ["AnswerMemory", "json_answer", "page_answer", "page_bytes"]

_COPIES_OF_A_PAGE: Final = 3
"""As rows, as records and as written."""
_MOST_OF_AN_ENTRY: Final = 32 << 10
"""Bytes of the entry of a listing; those that were stored before there was a limit are rare."""


async def _answer_memory(budgets: Service[Budgets]) -> AsyncIterator[Reservation]:
    # Not of scope "function": what is sent is still held.
    with budgets.answering() as hold:
        yield hold


AnswerMemory = Annotated[Reservation, Depends(_answer_memory)]
"""Memory that a large answer takes until it is sent."""


def page_bytes(limit: int) -> int:
    """Memory for a page of so many entries."""
    return _COPIES_OF_A_PAGE * min(limit * _MOST_OF_AN_ENTRY, MAX_PAGE_BYTES)


def page_answer(items: Iterable[BaseModel], next_cursor: str | None) -> Response:
    """A page of a listing as JSON, one entry made and written after the other."""
    written = b",".join(item.__pydantic_serializer__.to_json(item) for item in items)
    body = b'{"items":[%b],"next_cursor":%b}' % (written, to_json(next_cursor))
    return Response(body, media_type="application/json")


def json_answer(answer: BaseModel) -> Response:
    """An answer as JSON."""
    body = answer.__pydantic_serializer__.to_json(answer)
    return Response(body, media_type="application/json")
