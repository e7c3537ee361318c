"""HTTP on a connection: httptools parses where it is installed, else h11, with the same limits.

Both refuse what two readers could take for different requests, and a head that does not end, or not
in time. What uvicorn leaves to h11 alone is checked here for httptools.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.infra.http.answers import ABORT
from app.server.connections import ConnectionLimits, HeadDeadline, turn_away

try:
    import httptools
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
except ImportError:  # not built for this machine
    HttpToolsProtocol = None  # type: ignore[assignment,misc]

__all__ = ["MAX_HEAD_BYTES", "MAX_PIPELINED", "PROTOCOL", "PROTOCOLS"]

MAX_HEAD_BYTES: Final = 64 << 10
"""Bytes of a head, or of what follows a body, that may arrive before it is whole: h11's limit."""
MAX_PIPELINED: Final = 16
"""Requests that wait behind the one that is answered; h11 does not read them before."""

_MAX_DIGITS: Final = 20
"""Of a length, as in h11; Python refuses to read numbers of thousands of digits."""
_LENGTH: Final = frozenset({b"content-length", b"transfer-encoding"})

_DEFAULTS: Final = ConnectionLimits()

_CONNECTION: Final = frozenset({b"connection", b"proxy-connection"})
"""After a body httptools would obey them, and leave the next requests without an answer."""


class Abortable(H11Protocol):
    """HTTP whose answers can close their connection at once, by the extension ``ABORT``.

    Otherwise it stays open until its client has read what waits to be sent.

    Args:
        limits: of connections, and of the time for a head.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits = _DEFAULTS, **more: Any) -> None:
        super().__init__(*args, **more)
        self._limits = limits
        self._head = HeadDeadline(limits.head_timeout_s, self._end_late_head)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self._limits.max_connections:
            turn_away(transport, self._limits)
            return
        super().connection_made(transport)
        self._head.expect()
        serve = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope.setdefault("extensions", {})[ABORT] = transport.abort
            await serve(scope, receive, send)

        self.app = app

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            self._head.expect()
        else:
            self._head.met()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head.met()
        super().connection_lost(exc)

    def _end_late_head(self) -> None:
        self.transport.abort()


class MalformedRequest(ValueError):
    """Raised out of the parser, which answers it with 400."""


if TYPE_CHECKING or HttpToolsProtocol is not None:

    def _check_head(version: str, fields: list[tuple[bytes, bytes]]) -> None:
        """Refuse what h11 refuses, and httptools does not.

        Raises:
            MalformedRequest: no version, no host or several, a length of very many digits, or a
                body that is coded otherwise than in chunks.
        """
        hosts = sum(name == b"host" for name, _ in fields)
        if version == "0.9":
            raise MalformedRequest("a request has a version")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            raise MalformedRequest("a request names one host")
        if any(len(value) > _MAX_DIGITS for name, value in fields if name == b"content-length"):
            raise MalformedRequest("a length has few digits")
        codings = [value for name, value in fields if name == b"transfer-encoding"]
        if codings and [each.lower() for each in codings] != [b"chunked"]:
            raise MalformedRequest("a body is coded in chunks or not at all")

    def _without_chunks(cycle: RequestResponseCycle, app: Any) -> Any:
        """The application for a client of HTTP/1.0, which knows no chunks.

        An answer that does not say its length ends with its connection.
        """

        async def serve(scope: Any, receive: Any, send: Any) -> None:
            open_ended = False

            async def send_plain(message: Any) -> None:
                nonlocal open_ended
                if message["type"] == "http.response.start":
                    names = {name.lower() for name, _ in message.get("headers", ())}
                    open_ended = names.isdisjoint(_LENGTH)
                    if open_ended:
                        cycle.chunked_encoding = False
                elif open_ended:
                    cycle.expected_content_length = len(message.get("body", b""))
                await send(message)

            await app(scope, receive, send_plain)

        return serve

    class FastAbortable(HttpToolsProtocol):
        """The same by httptools, which is written in C.

        A request is refused with 400 whose head is too long or not as h11 takes it, or which comes
        behind too many others. Fields after a body are dropped.

        Args:
            limits: of connections, and of the time for a head.
        """

        _unparsed = 0
        """Bytes that came since a head, a piece of a body or a request was whole."""
        _in_head = False
        _repeated = False
        """Whether the parser reads a head that another one has read."""
        _refused = False
        _answering: RequestResponseCycle | None = None
        """What the application works on; ``cycle`` is what came last."""
        _in_body = False

        def __init__(self, *args: Any, limits: ConnectionLimits = _DEFAULTS, **more: Any) -> None:
            super().__init__(*args, **more)
            self._limits = limits
            self._head = HeadDeadline(limits.head_timeout_s, self._end_late_head)

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            if len(self.connections) >= self._limits.max_connections:
                turn_away(transport, self._limits)
                return
            super().connection_made(transport)
            self._head.expect()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head.met()
            super().connection_lost(exc)
            cycle = self._answering
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

        def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
            self._answering = cycle
            whole = cycle.scope["http_version"] == "1.0"
            super()._start_asgi_task(cycle, _without_chunks(cycle, app) if whole else app)

        def data_received(self, data: bytes) -> None:
            if self._refused:
                return
            self._unset_keepalive_if_required()
            self._unparsed += len(data)
            try:
                self._feed(data)
            except httptools.HttpParserInvalidMethodError:
                self._hand_over(data)
                return
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return
            if self._unparsed > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of a request is too long.")
            if self._in_head or self._is_silent():
                self._head.expect()

        def _is_silent(self) -> bool:
            """Whether something came that begins no request, and nothing else is going on."""
            cycle = self.cycle
            answered = cycle is None or cycle.response_complete
            return answered and not self._in_body and self.timeout_keep_alive_task is None

        def _end_late_head(self) -> None:
            """End the connection, unless what comes waits behind a request that is answered."""
            cycle = self.cycle
            if cycle is None or cycle.response_complete:
                self.transport.abort()
            else:
                self._head.expect()

        def _hand_over(self, data: bytes) -> None:
            """Let h11 read a request of a method that httptools does not know, and what follows."""
            cycle = self.cycle
            if self._unparsed != len(data) or not (cycle is None or cycle.response_complete):
                self.send_400_response("Invalid HTTP request received.")
                return
            self._refused = True
            self._head.met()
            self.connections.discard(self)
            other = Abortable(self.config, self.server_state, self.app_state, limits=self._limits)
            self.transport.set_protocol(other)
            other.connection_made(self.transport)
            other.data_received(data)

        def _feed(self, data: bytes) -> None:
            """Parse data. No upgrade is offered, so a request that asks for one is one of HTTP/1.1.

            httptools ends such a request with its head, and takes its body for the next protocol.
            So another parser goes on, to which the length of the body is said.
            """
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as asked:
                left = data[asked.args[0] :]
            length = [b": ".join(field) for field in self.headers if field[0] in _LENGTH]
            head = b"\r\n".join([b"POST / HTTP/1.1", *length, b"", b""])
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self._repeated = True
            self.parser.feed_data(head)
            self._feed(left)

        def send_400_response(self, msg: str) -> None:
            """Refuse what was sent, unless that would be taken for the answer to another request.

            Then its connection is closed without any.
            """
            self._refused = True
            cycle = self.cycle
            begun = not self._in_head and not self.pipeline  # the body of the one that is answered
            if cycle is None or cycle.response_complete or (begun and not cycle.response_started):
                super().send_400_response(msg)
            else:
                self.transport.abort()

        def on_message_begin(self) -> None:
            if self._repeated:
                return
            super().on_message_begin()
            self._in_head = True
            self.scope["extensions"] = {ABORT: self.transport.abort}  # type: ignore[dict-item]

        def on_url(self, url: bytes) -> None:
            if not self._repeated:
                super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._in_head:
                super().on_header(name, value)
            elif not self._repeated and name.lower() in _CONNECTION:
                raise MalformedRequest("what closes a connection stands in a head")

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._in_body = True
            self._head.met()
            self._unparsed = 0
            if self._repeated:
                self._repeated = False
                return
            _check_head(self.parser.get_http_version(), self.headers)
            if len(self.pipeline) >= MAX_PIPELINED:
                raise MalformedRequest("too many requests wait for their answers")
            super().on_headers_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self._in_head:  # as its client had to wait, its time begins now
                self._head.met()
                self._head.expect()

        def on_body(self, body: bytes) -> None:
            self._unparsed = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            if not self.parser.should_upgrade():
                self._in_body = False
                self._unparsed = 0
                super().on_message_complete()


PROTOCOLS: Final[dict[str, type[asyncio.Protocol]]] = {"h11": Abortable}
if HttpToolsProtocol is not None:
    PROTOCOLS["httptools"] = FastAbortable
PROTOCOL: Final = PROTOCOLS.get("httptools", Abortable)
