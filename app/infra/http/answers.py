"""Large answers: made in the thread of the request, in memory of the budget, sent piece by piece.

FastAPI would validate and write an answer on the event loop, where other requests wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Generic, TypeVar

from fastapi import Depends, Request, Response
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.container import Container
from app.infra.db.pagination import MAX_PAGE_BYTES
from app.infra.deadlines import Deadline
from app.infra.http.dependencies import Limit
from app.infra.http.requests.bodies import BodyLimits
from app.infra.http.requests.memory_budget import Budgets, Reservation
from app.infra.http.services import services_of
from app.infra.http.turns import tenant_of

__all__ = [
    "ABORT",
    "Answer",
    "AnswerMemory",
    "LayoutMemory",
    "PageLimit",
    "binary_answer",
    "gathered_answer",
    "json_answer",
    "list_answer",
    "list_pieces",
    "page_answer",
    "streamed_answer",
    "answer_memory",
    "layout_memory",
    "page_limit",
]

T = TypeVar("T")

ABORT: Final = "modelkin.abort"
"""The extension of ASGI that closes a connection and drops what waits to be sent."""

_JSON: Final = "application/json"
_PIECE_BYTES: Final = 1 << 18
_COPIES_OF_A_PAGE: Final = 3
"""Copies of a page in memory: as rows, as records and as text."""
_MOST_OF_AN_ENTRY: Final = 32 << 10
"""Bytes of the entry of a listing; those that were stored before there was a limit are rare."""
_LAYOUT_BYTES: Final = 30 << 20
"""Memory of the tensors of a layout of a megabyte, while they are read and written."""


async def answer_memory(request: Request) -> AsyncIterator[Reservation]:
    # Not of scope "function": the memory is held while the answer is sent.
    with services_of(request)[Budgets].answering(tenant_of(request)) as hold:
        yield hold


AnswerMemory = Annotated[Reservation, Depends(answer_memory)]
"""Memory that a large answer takes until it is sent."""


async def layout_memory(request: Request) -> AsyncIterator[Reservation]:
    with services_of(request)[Budgets].answering(tenant_of(request)) as hold:
        await hold.take_in_turn(_LAYOUT_BYTES)
        yield hold


LayoutMemory = Annotated[Reservation, Depends(layout_memory)]
"""Memory for an answer with an entry for each tensor of a layout, before it takes a turn."""


async def page_limit(request: Request, limit: Limit = 100) -> AsyncIterator[int]:
    with services_of(request)[Budgets].answering(tenant_of(request)) as hold:
        await hold.take_in_turn(_COPIES_OF_A_PAGE * min(limit * _MOST_OF_AN_ENTRY, MAX_PAGE_BYTES))
        yield limit


PageLimit = Annotated[int, Depends(page_limit)]
"""The most entries of a page, once there is memory for them."""


def binary_answer(
    body: bytes | bytearray, media_type: str, headers: Mapping[str, str], status: int = 200
) -> Response:
    """An answer with these bytes, sent piece by piece if they are many."""
    if len(body) <= _PIECE_BYTES:
        return Response(bytes(body), status, dict(headers), media_type)
    sized = {**headers, "Content-Length": str(len(body))}
    return _PacedResponse(_slices(body), status, sized, media_type)


def gathered_answer(
    pieces: Iterable[bytes],
    media_type: str,
    headers: Mapping[str, str],
    hold: Reservation,
    deadline: Deadline,
) -> Response:
    """Make an answer of these pieces, which are produced for as long as the client waits for it.

    Args:
        hold: the reservation, which is left with the memory of the written pieces.

    Raises:
        ClientLeft: the client has hung up.
    """
    content = bytearray()
    for piece in pieces:
        deadline.require_client()
        content += piece
    hold.keep(len(content))
    return binary_answer(content, media_type, headers)


def streamed_answer(
    pieces: Iterator[bytes], media_type: str, headers: Mapping[str, str]
) -> Response:
    """An answer whose pieces are made in a thread, each when the previous piece is sent."""
    return _PacedResponse(pieces, media_type=media_type, headers=dict(headers))


def page_answer(items: Iterable[BaseModel | bytes], next_cursor: str | None) -> Response:
    """A page of a listing as JSON; entries are made and written one by one.

    Args:
        items: the entries, or their JSON.
        next_cursor: the cursor of the next page; None for the last page.
    """
    return list_answer("items", items, {"next_cursor": next_cursor})


def list_answer(
    name: str,
    items: Iterable[BaseModel | bytes] | None,
    others: BaseModel | Mapping[str, object],
    hold: Reservation | None = None,
) -> Response:
    """A JSON object with a long list, whose entries are made and written one by one.

    One call for the whole list would hold up every other thread.

    Args:
        name: the field of the list.
        items: the entries, or their JSON; None for null.
        others: the other fields, without a field of that name.
        hold: the reservation, which is left with the memory of the written pieces.
    """
    body = bytearray().join(list_pieces(name, items, others))
    if hold is not None:
        hold.keep(len(body))
    return binary_answer(body, _JSON, {})


def list_pieces(
    name: str,
    items: Iterable[BaseModel | bytes] | None,
    others: BaseModel | Mapping[str, object],
) -> Iterator[bytes]:
    """The JSON of an object with a long list, piece by piece."""
    rest = others.model_dump(exclude={name}) if isinstance(others, BaseModel) else others
    yield to_json(rest)[:-1] + b',"%b":' % name.encode()
    if items is None:
        yield b"null}"
        return
    piece = bytearray(b"[")
    for place, item in enumerate(items):
        piece += b"," if place else b""
        piece += item if isinstance(item, bytes) else _json_of(item)
        if len(piece) > _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece) + b"]}"


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The model of an answer, with its status and headers.

    Attributes:
        status: the HTTP status; None for that which the operation declares.
    """

    model: T
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(
    answer: BaseModel,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    *,
    exclude_unset: bool = False,
) -> Response:
    """An answer as JSON.

    Args:
        exclude_unset: leave out the fields that were not set.
    """
    body = answer.model_dump_json(by_alias=True, exclude_unset=exclude_unset).encode()
    return binary_answer(body, _JSON, headers or {}, status)


def _json_of(item: BaseModel) -> bytes:
    return item.__pydantic_serializer__.to_json(item)


async def _slices(body: bytes | bytearray) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), _PIECE_BYTES):
        yield bytes(body[begin : begin + _PIECE_BYTES])


class _PacedResponse(StreamingResponse):
    """An answer that its client has to take as fast as it would have to send a body.

    The answer's part of the budget is only given back at the end. A client that stops reading is
    cut off: bytes that wait to be sent are dropped with the connection.
    """

    async def stream_response(self, send: Send) -> None:
        limits: BodyLimits = self._services[BodyLimits]
        loop = asyncio.get_running_loop()
        began, sent = loop.time(), 0
        head = {"type": "http.response.start", "status": self.status_code}
        await send({**head, "headers": self.raw_headers})
        try:
            async with asyncio.timeout(None) as deadline:
                async for piece in self.body_iterator:
                    deadline.reschedule(began + limits.allowed_seconds(sent))
                    sent += len(piece)
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            if self._abort is not None:
                self._abort()
                while (await self._receive())["type"] != "http.disconnect":
                    pass  # the rest of the request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._services: Container = scope["app"].state.services
        self._abort: Callable[[], None] | None = scope.get("extensions", {}).get(ABORT)
        self._receive = receive
        await super().__call__(scope, receive, send)
