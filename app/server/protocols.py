"""HTTP on a connection, as h11 reads it: each request has one meaning, and its head has its limits.

uvicorn serves what h11 has read. This module adds three checks: the number of connections, the time
until a head is whole, and the refusal of bytes that two readers could take for different requests.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.infra.http.answers import ABORT
from app.server.connections import ConnectionLimits, HeadDeadline, turn_away

__all__ = ["MAX_HEAD_BYTES", "HttpProtocol"]

MAX_HEAD_BYTES: Final = 64 << 10
"""Bytes of a head, or of what follows a body, that may arrive before it is whole."""

_LENGTHS: Final = frozenset({b"content-length", b"transfer-encoding"})
_DEFAULTS: Final = ConnectionLimits()


class HttpProtocol(H11Protocol):
    """HTTP whose answers can close their connection at once, by the extension ``ABORT``.

    Otherwise it stays open until its client has read what waits to be sent. A request with two
    lengths is refused with 400: a proxy in front may have read the other one.

    Args:
        limits: limits of connections, and of the time for a head.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits = _DEFAULTS, **more: Any) -> None:
        super().__init__(*args, **more)
        self._limits = limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self._limits.max_connections:
            turn_away(transport, self._limits)
            return
        super().connection_made(transport)
        self._head = HeadDeadline(self._limits.head_timeout_s, transport.abort)
        self._head.expect()
        serve = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope.setdefault("extensions", {})[ABORT] = transport.abort
            wrong = _wrong_with(scope)
            if wrong is None:
                await serve(scope, receive, send)
            else:
                await _refuse(wrong, send)

        self.app = app

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            self._head.expect()
        else:
            self._head.meet()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head.meet()
        super().connection_lost(exc)


def _wrong_with(scope: Any) -> bytes | None:
    """Say why a head that h11 accepts is refused: two lengths of a body, or its size."""
    names, size = set(), len(scope["raw_path"]) + len(scope["query_string"])
    for name, value in scope["headers"]:
        names.add(name)
        size += len(name) + len(value) + len(b": \r\n")
    if names >= _LENGTHS:
        return b"A request has a length or comes in chunks, not both."
    return b"The head of a request is too long." if size > MAX_HEAD_BYTES else None


async def _refuse(text: bytes, send: Any) -> None:
    """Answer 400 and end the connection, without reading what may be a body."""
    head = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 400, "headers": head})
    await send({"type": "http.response.body", "body": text})
