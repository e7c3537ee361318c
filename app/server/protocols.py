"""HTTP on a connection, as h11 reads it: each request has one meaning, and its head has its limits.

uvicorn serves what h11 has read. This module adds three checks: the number of connections, the time
until a head is whole, and the refusal of heads that two readers could take for different requests.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.infra.http.answers import ABORT
from app.server.connections import ConnectionLimits, HeadDeadline, turn_away
from app.server.strict_h11 import StrictConnection

__all__ = ["HttpProtocol"]

_LENGTHS: Final = frozenset({b"content-length", b"transfer-encoding"})
_LIKE_LENGTHS: Final = frozenset({b"content_length", b"transfer_encoding"})
"""Names that some readers take for those of a length, as CGI does."""
_CLOSE: Final = (b"connection", b"close")
_DEFAULTS: Final = ConnectionLimits()


class HttpProtocol(H11Protocol):
    """HTTP whose answers can close their connection at once, by the extension ``ABORT``.

    Otherwise it stays open until its client has read what waits to be sent. A request of which a
    proxy in front may have read something else is refused with 400, and its connection ends.

    Args:
        limits: limits of connections, and of the time for a head.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits = _DEFAULTS, **more: Any) -> None:
        super().__init__(*args, **more)
        self.conn = StrictConnection()
        self._limits = limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self._limits.max_connections:
            turn_away(transport, self._limits)
            return
        super().connection_made(transport)
        self._abort = transport.abort
        self._head = HeadDeadline(self._limits.head_timeout_s, transport.abort)
        self._head.expect()
        serve = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            async def send_while_open(message: Any) -> None:
                if transport.is_closing():  # a body that is no HTTP was refused meanwhile
                    return
                if self.conn.they_are_waiting_for_100_continue and "headers" in message:
                    # Whether the body or the next request follows is the client's choice.
                    message = {**message, "headers": [*message["headers"], _CLOSE]}
                await send(message)

            scope.setdefault("extensions", {})[ABORT] = transport.abort
            wrong = _wrong_with(scope)
            if wrong is None:
                await serve(scope, receive, send_while_open)
            else:
                await _refuse(wrong, send_while_open)
            while transport.is_closing() and (await receive())["type"] != "http.disconnect":
                pass

        self.app = app

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # an answer has begun, so there is no place for a 400
            self._abort()
        is_idle = self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None
        is_answered = self.conn.our_state is h11.DONE  # and nothing reads the rest of the body
        if is_idle or is_answered:
            self._head.expect()
        else:
            self._head.meet()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head.meet()
        super().connection_lost(exc)


def _wrong_with(scope: Any) -> bytes | None:
    """Say why a head that h11 accepts is refused: another reader could take it for another one."""
    names = {name for name, _ in scope["headers"]}
    if scope["http_version"] not in {"1.0", "1.1"}:
        return b"A request is of HTTP/1.0 or HTTP/1.1."
    if not scope["raw_path"].startswith(b"/") or b"#" in scope["raw_path"] + scope["query_string"]:
        return b"The target of a request is a path, with or without a query."
    if b"transfer-encoding" in names and scope["http_version"] == "1.0":
        return b"A request of HTTP/1.0 has no chunks."
    if names >= _LENGTHS:
        return b"A request has a length or comes in chunks, not both."
    if names & _LIKE_LENGTHS:
        return b"The names of lengths are Content-Length and Transfer-Encoding, with a hyphen."
    return None


async def _refuse(text: bytes, send: Any) -> None:
    """Answer 400 and end the connection, without reading what may be a body."""
    head = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
        _CLOSE,
    ]
    await send({"type": "http.response.start", "status": 400, "headers": head})
    await send({"type": "http.response.body", "body": text})
