"""Large answers: made in the thread of the request, in memory of the budget, sent piece by piece.

FastAPI would validate and write an answer on the event loop, where other requests wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Annotated, Final

from fastapi import Depends, Request, Response
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.container import Container
from app.infra.db.pagination import MAX_PAGE_BYTES
from app.infra.http.bodies import BodyLimits
from app.infra.http.dependencies import Limit
from app.infra.http.memory_budget import Budgets, Reservation
from app.infra.http.services import Service
from app.infra.http.turns import tenant_of

__all__ = [
    "AnswerMemory",
    "PageLimit",
    "binary_answer",
    "json_answer",
    "page_answer",
    "streamed_answer",
]

_JSON: Final = "application/json"
_PIECE_BYTES: Final = 1 << 18
_COPIES_OF_A_PAGE: Final = 3
"""As rows, as records and as written."""
_MOST_OF_AN_ENTRY: Final = 32 << 10
"""Bytes of the entry of a listing; those that were stored before there was a limit are rare."""


async def _answer_memory(request: Request, budgets: Service[Budgets]) -> AsyncIterator[Reservation]:
    # Not of scope "function": what is sent is still held.
    with budgets.answering(tenant_of(request)) as hold:
        yield hold


AnswerMemory = Annotated[Reservation, Depends(_answer_memory)]
"""Memory that a large answer takes until it is sent."""


async def _page_limit(
    request: Request, budgets: Service[Budgets], limit: Limit = 100
) -> AsyncIterator[int]:
    with budgets.answering(tenant_of(request)) as hold:
        await hold.take_in_turn(_COPIES_OF_A_PAGE * min(limit * _MOST_OF_AN_ENTRY, MAX_PAGE_BYTES))
        yield limit


PageLimit = Annotated[int, Depends(_page_limit)]
"""The most entries of a page, once there is memory for them."""


def binary_answer(body: bytes, media_type: str, headers: Mapping[str, str]) -> Response:
    """An answer with these bytes, sent piece by piece if they are many."""
    if len(body) <= _PIECE_BYTES:
        return Response(body, media_type=media_type, headers=dict(headers))
    sized = {**headers, "Content-Length": str(len(body))}
    return _PacedResponse(_slices(body), media_type=media_type, headers=sized)


def streamed_answer(
    pieces: Iterator[bytes], media_type: str, headers: Mapping[str, str]
) -> Response:
    """An answer whose pieces are made in a thread, each when the one before is sent."""
    return _PacedResponse(pieces, media_type=media_type, headers=dict(headers))


def page_answer(items: Iterable[BaseModel | bytes], next_cursor: str | None) -> Response:
    """A page of a listing as JSON, one entry made and written after the other.

    Args:
        items: the entries, or their JSON.
        next_cursor: of the next page; None for the last.
    """
    written = b",".join(map(_written, items))
    body = b'{"items":[%b],"next_cursor":%b}' % (written, to_json(next_cursor))
    return binary_answer(body, _JSON, {})


def json_answer(answer: BaseModel) -> Response:
    """An answer as JSON."""
    return binary_answer(answer.__pydantic_serializer__.to_json(answer), _JSON, {})


def _written(item: BaseModel | bytes) -> bytes:
    return item if isinstance(item, bytes) else item.__pydantic_serializer__.to_json(item)


async def _slices(body: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), _PIECE_BYTES):
        yield body[begin : begin + _PIECE_BYTES]


class _PacedResponse(StreamingResponse):
    """An answer that its client has to take as fast as it has to send a body.

    What it holds of the budget is not given back before. One who stops reading is cut off.
    """

    async def stream_response(self, send: Send) -> None:
        limits: BodyLimits = self._services[BodyLimits]
        loop = asyncio.get_running_loop()
        began, sent = loop.time(), 0
        head = {"type": "http.response.start", "status": self.status_code}
        await send({**head, "headers": self.raw_headers})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as deadline:
                async for piece in self.body_iterator:
                    deadline.reschedule(began + limits.allowed(sent))
                    sent += len(piece)
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._services: Container = scope["app"].state.services
        await super().__call__(scope, receive, send)
