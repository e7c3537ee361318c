"""HTTP on raw sockets: what is answered, refused and cut."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import product
from typing import Any, cast

import pytest
import uvicorn

from app.infra.http.answers import ABORT
from app.server.connections import ConnectionLimits
from app.server.protocols import HttpProtocol
from app.server.strict_h11 import MAX_HEAD_BYTES

HOST = "Host: localhost\r\n"
GET = f"GET /a HTTP/1.1\r\n{HOST}\r\n"
PIPELINED = 16
LIMITS = ConnectionLimits(max_connections=30, head_timeout_s=0.6)


class Echo:
    """Answers what it was asked; ``/abort`` cuts the connection, ``/slow`` waits for a while."""

    def __init__(self, protocol: Any) -> None:
        self.seen: list[str] = []
        listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = listening.getsockname()[1]
        config = uvicorn.Config(
            self._answer,
            http=protocol,
            ws="none",
            log_config=None,
            interface="asgi3",
        )
        config.lifespan = "off"
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listening],), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope["path"])
        if scope["path"] == "/abort":
            scope["extensions"][ABORT]()
            return
        if scope["path"] == "/slow":
            await asyncio.sleep(0.3)
        if scope["path"] == "/slower":
            await asyncio.sleep(2 * LIMITS.head_timeout_s)
        if scope["path"] == "/pieces":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for piece in (b"one", b"two"):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})
            return
        if scope["path"] == "/endless":
            await self._answer_without_end(receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        names = b",".join(name for name, _ in scope["headers"])
        said = b" ".join([scope["method"].encode(), scope["path"].encode(), body, names])
        head = [(b"content-length", str(len(said)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": said})

    async def _answer_without_end(self, receive: Any, send: Any) -> None:
        """Until the client has left."""
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        left = asyncio.ensure_future(receive())
        for _ in range(400):
            piece = {"type": "http.response.body", "body": bytes(1 << 16), "more_body": True}
            await send(piece)
            if (await asyncio.wait([left], timeout=0.005))[0]:
                self.seen.append(left.result()["type"])
                return
        left.cancel()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def ask(self, *pieces: str | bytes, timeout: float = 5, end: bool = True) -> bytes:
        """All that is answered to these bytes until the connection closes or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as client:
            answered = b""
            try:
                for piece in pieces:
                    client.sendall(piece if isinstance(piece, bytes) else piece.encode("latin-1"))
                    time.sleep(0.02)
                while received := client.recv(1 << 16):
                    answered += received
                    client.settimeout(0.2)
            except (TimeoutError, ConnectionError):
                pass
            return answered


@pytest.fixture(scope="module")
def echo() -> Iterator[Echo]:
    served = Echo(HttpProtocol)
    yield served
    served.close()


@pytest.fixture(scope="module")
def limited() -> Iterator[Echo]:
    """A server with low limits."""
    served = Echo(partial(cast(Any, HttpProtocol), limits=LIMITS))
    yield served
    served.close()


def test_an_answer_may_cut_its_connection(echo: Echo) -> None:
    """By the extension that answers use whose readers stall."""
    assert b"" == echo.ask(f"GET /abort HTTP/1.1\r\n{HOST}\r\n")


REFUSED = {
    "no HTTP": "hello\r\n\r\n",
    "a head without an end": [f"GET /a HTTP/1.1\r\n{HOST}X: ", *["y" * 20_000] * 20],
    "fields without an end": [f"GET /a HTTP/1.1\r\n{HOST}", *["X: y\r\n" * 4_000] * 20],
    "an address without an end": ["GET /", *["y" * 20_000] * 20],
    "a whole head too long": f"GET /a HTTP/1.1\r\n{HOST}X: {'y' * MAX_HEAD_BYTES}\r\n\r\n",
    "no host": "GET /a HTTP/1.1\r\n\r\n",
    "two hosts": f"GET /a HTTP/1.1\r\n{HOST}{HOST}\r\n",
    "two lengths": f"POST /a HTTP/1.1\r\n{HOST}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a length with a sign": f"POST /a HTTP/1.1\r\n{HOST}Content-Length: +1\r\n\r\na",
    "a length of many digits": (
        f"POST /a HTTP/1.1\r\n{HOST}Content-Length: {'0' * 5000}1\r\n\r\na"
    ),
    "an unknown coding": f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a coding of chunks": (
        f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
    ),
    "two codings": (
        f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: identity\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "no coding, said so": f"GET /a HTTP/1.1\r\n{HOST}Transfer-Encoding: identity\r\n\r\n",
    "no version": "GET /a\r\n\r\n",
    "a space before a colon": f"GET /a HTTP/1.1\r\n{HOST}X : y\r\n\r\n",
    "NUL in a field": f"GET /a HTTP/1.1\r\n{HOST}X: a\0b\r\n\r\n",
    "a name with a space": f"GET /a HTTP/1.1\r\n{HOST}X Y: b\r\n\r\n",
    "a chunk of no size": (
        f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n"
    ),
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_what_is_malformed_or_ambiguous_is_refused(echo: Echo, sent: str | list[str]) -> None:
    """With 400 and a closed connection; no head is kept that does not end."""
    echo.seen.clear()
    answered = echo.ask(*([sent] if isinstance(sent, str) else sent))
    assert answered.startswith(b"HTTP/1.1 400 ") or answered == b"", answered
    assert b"200 OK" not in answered
    assert not echo.seen or "\r\nzz\r\n" in sent, "the application was asked"


def test_a_body_has_one_length(echo: Echo) -> None:
    """A request with a length and chunks is refused, and nothing behind its head is read."""
    echo.seen.clear()
    smuggled = f"GET /smuggled HTTP/1.1\r\n{HOST}\r\n"
    both = f"Content-Length: {len(smuggled)}\r\nTransfer-Encoding: chunked\r\n"
    for method, begin in product(("POST", "BREW"), ("", "0;", "0\r\n\r\n")):
        answered = echo.ask(f"{method} /both HTTP/1.1\r\n{HOST}{both}\r\n{begin}{smuggled}")
        assert answered.startswith(b"HTTP/1.1 400 "), answered
        assert 1 == answered.count(b"HTTP/1.1"), answered
    assert not echo.seen
    echo.ask(f"POST /b HTTP/1.1\r\n{HOST}Content-Length: {len(smuggled)}\r\n\r\n{smuggled}")
    assert "/b" in echo.seen
    assert "/smuggled" not in echo.seen


def test_fields_after_a_body_are_none_of_the_request(echo: Echo) -> None:
    """One could set what was checked before."""
    answered = echo.ask(
        f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n"
        "2\r\nok\r\n0\r\nX-Late: 1\r\n\r\n"
    )
    assert b"200" in answered[:20]
    assert b"x-late" not in answered


def test_a_field_after_a_body_leaves_no_request_without_an_answer(echo: Echo) -> None:
    """A proxy may send others' requests behind such a one; the connection serves them, or ends."""
    chunks = f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n"
    for field in ("Connection: close", "Proxy-Connection: close", "Connection: upgrade"):
        with socket.create_connection(("127.0.0.1", echo.port), timeout=5) as client:
            client.sendall(f"{chunks}{field}\r\n\r\n".encode())
            time.sleep(0.02)
            answered = b""
            with suppress(ConnectionError):
                client.sendall(GET.encode())
                while b"GET /a" not in answered and (received := client.recv(1 << 16)):
                    answered += received  # until it is silent for too long: an error


def test_a_client_of_HTTP_1_0_gets_no_chunks(echo: Echo) -> None:
    """It would take their sizes for what was answered; the end of the connection ends an answer."""
    for fields in ("", "Connection: keep-alive\r\n"):
        answered = echo.ask(f"GET /pieces HTTP/1.0\r\n{fields}\r\n")
        head, _, body = answered.partition(b"\r\n\r\n")
        assert b"onetwo" == body
        assert b"chunked" not in head.lower()
        assert b"connection: close" in head.lower()
    assert echo.ask(f"GET /pieces HTTP/1.1\r\n{HOST}\r\n").endswith(b"\r\n0\r\n\r\n")


def test_fields_after_a_body_have_a_limit(echo: Echo) -> None:
    """Nothing is kept of what does not end."""
    begun = f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: "
    answered = echo.ask(begun, *["y" * (MAX_HEAD_BYTES // 2)] * 4)
    assert b"200 OK" not in answered


def test_requests_behind_each_other_are_answered_in_turn(echo: Echo) -> None:
    """As far as a few are sent at once."""
    paths = [f"/p{number}" for number in range(PIPELINED)]
    answered = echo.ask("".join(f"GET {path} HTTP/1.1\r\n{HOST}\r\n" for path in paths))
    assert paths == [piece.split(b" ")[0].decode() for piece in answered.split(b"GET ")[1:]]


def test_who_leaves_is_missed_although_more_was_asked(echo: Echo) -> None:
    """The answer that is being made ends, rather than what waits behind it."""
    echo.seen.clear()
    with socket.create_connection(("127.0.0.1", echo.port), timeout=5) as client:
        client.sendall(f"GET /endless HTTP/1.1\r\n{HOST}\r\n{GET}".encode())
        client.recv(100)
    until = time.monotonic() + 5
    while echo.seen == ["/endless"] and time.monotonic() < until:
        time.sleep(0.02)
    assert ["/endless", "http.disconnect"] == echo.seen


def test_a_malformed_request_is_no_answer_to_the_one_before(echo: Echo) -> None:
    """It is answered after that one, or not at all."""
    answered = echo.ask(f"GET /slow HTTP/1.1\r\n{HOST}\r\nrubbish\r\n\r\n")
    assert not answered.startswith(b"HTTP/1.1 400 "), answered


def test_a_method_that_no_parser_knows_is_the_applications(echo: Echo) -> None:
    """It says which methods there are."""
    answered = echo.ask(f"BREW /a HTTP/1.1\r\n{HOST}\r\n", GET, f"BREW /b HTTP/1.1\r\n{HOST}\r\n")
    assert [b"BREW /a", b"GET /a", b"BREW /b"] == [
        b" ".join(piece.split(b" ")[:2]) for piece in answered.split(b"\r\n\r\n")[1:]
    ]


def test_an_upgrade_that_is_not_offered_is_ignored(echo: Echo) -> None:
    """Some clients ask for HTTP/2 so; their request is answered, and the next one, too."""
    asked = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
    answered = echo.ask(f"GET /a HTTP/1.1\r\n{HOST}{asked}\r\n", GET)
    assert 2 == answered.count(b"200 OK"), answered
    posted = f"POST /a HTTP/1.1\r\n{HOST}{asked}Content-Length: 2\r\n\r\nok"
    answered = echo.ask(posted, GET)
    assert 2 == answered.count(b"200 OK"), answered
    assert b"/a ok " in answered


def test_the_body_of_such_a_request_is_no_request(echo: Echo) -> None:
    """Even if it comes later than its head."""
    echo.seen.clear()
    smuggled = f"GET /smuggled HTTP/1.1\r\n{HOST}\r\n"
    asked = f"{HOST}Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: {len(smuggled)}\r\n"
    echo.ask(f"POST /a HTTP/1.1\r\n{asked}\r\n", smuggled, GET)
    assert ["/a", "/a"] == echo.seen
    chunked = f"{HOST}Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n"
    size = f"{len(smuggled):x}\r\n"
    echo.ask(f"POST /b HTTP/1.1\r\n{chunked}\r\n{size[:1]}", size[1:], f"{smuggled}\r\n0\r\n\r\n")
    assert ["/a", "/a", "/b"] == echo.seen


def test_a_body_without_consent_is_not_waited_for(echo: Echo) -> None:
    """A client that was answered may send it or not: what follows would have two readings."""
    expected = f"{HOST}Expect: 100-continue\r\nContent-Length: {len(GET)}\r\n\r\n"
    answered = b""
    with echo.connect() as client:
        client.sendall(f"POST /pieces HTTP/1.1\r\n{expected}".encode())
        while received := client.recv(1 << 16):
            answered += received
    assert b"connection: close\r\n" in answered.lower()
    assert b"two" in answered
    assert b"HTTP/1.1 100 " in echo.ask(f"POST /a HTTP/1.1\r\n{expected}", GET)


def _ends(client: socket.socket) -> None:
    """Wait until the server has ended a connection, on which no request is answered."""
    answered = b""
    with suppress(ConnectionError):
        while received := client.recv(1 << 16):
            answered += received
    assert b"200 OK" not in answered


@pytest.mark.slow
def test_silent_connections_end(limited: Echo) -> None:
    """Also those that begin a request, or send stray bytes, and stop."""
    begun = [b"", b"GET /a HT", GET.encode()[:-2], b"\r\n", b"BREW /a HTTP/1.1\r\n"]
    with ExitStack() as open_ones:
        clients = [open_ones.enter_context(limited.connect()) for _ in begun * 3]
        for client, head in zip(clients, begun * 3, strict=True):
            client.sendall(head)
        started = time.monotonic()
        for client in clients:
            _ends(client)
        assert 0.4 < time.monotonic() - started < 3
    assert b"200 OK" in limited.ask(GET)


@pytest.mark.slow
@pytest.mark.parametrize("before", [b"", GET.encode()], ids=["first", "second"])
def test_a_head_that_trickles_in_ends(limited: Echo, before: bytes) -> None:
    """However steadily its bytes come, and behind a request that was answered, too."""
    started = time.monotonic()
    with limited.connect() as client, suppress(ConnectionError):
        client.sendall(before)
        while before and b"GET /a" not in client.recv(1 << 16):
            pass
        for byte in b"GET /a HTTP/1.1\r\nX: " + b"y" * 100:
            client.sendall(bytes([byte]))
            time.sleep(0.05)
        pytest.fail("the head went on for seconds")
    assert time.monotonic() - started < 3


@pytest.mark.slow
def test_what_waits_behind_an_answer_has_its_time(limited: Echo) -> None:
    """The half of a request that came while another one is answered is not late."""
    slower = f"GET /slower HTTP/1.1\r\n{HOST}\r\n".encode()
    with limited.connect() as client:
        client.sendall(slower + GET.encode()[:-2])
        answered = b""
        while b"GET /slower" not in answered:
            answered += client.recv(1 << 16)
        client.sendall(GET.encode()[-2:])
        while b"GET /a" not in answered:
            received = client.recv(1 << 16)
            assert received
            answered += received


@pytest.mark.slow
def test_a_body_has_longer_than_a_head(limited: Echo) -> None:
    """The application limits its time."""
    head = f"POST /a HTTP/1.1\r\n{HOST}Content-Length: 6\r\n\r\n".encode()
    with limited.connect() as client:
        client.sendall(head)
        for byte in b"a body":
            client.sendall(bytes([byte]))
            time.sleep(LIMITS.head_timeout_s / 4)
        assert b"200 OK" in client.recv(1 << 16)


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 100])
def test_a_body_that_nothing_reads_has_its_time(limited: Echo, pieces: int) -> None:
    """A request that was answered before its body came holds no connection."""
    with limited.connect() as client:
        client.sendall(f"POST /pieces HTTP/1.1\r\n{HOST}Content-Length: 1000\r\n\r\n".encode())
        answered = b""
        while b"two" not in answered:
            answered += client.recv(1 << 16)
        with suppress(ConnectionError):
            for _ in range(pieces):
                client.sendall(b"x")
                time.sleep(0.05)
            while client.recv(1 << 16):
                pass
            assert pieces == 1, "the body went on for seconds"


@pytest.mark.slow
def test_connections_beyond_the_limit_are_refused(limited: Echo) -> None:
    """With a 503, whatever they send, and then they are closed; others go on, and room comes."""
    time.sleep(0.2)  # for those of other tests to be gone
    with ExitStack() as open_ones:
        clients = [open_ones.enter_context(limited.connect()) for _ in range(30)]
        for client in clients:
            client.sendall(GET.encode())
            assert b"200 OK" in client.recv(1 << 16)
        for sent in (
            GET,
            f"POST /a HTTP/1.1\r\n{HOST}Content-Length: 100000\r\n\r\n" + "x" * 99_999,
        ):
            answered = limited.ask(sent)
            assert answered.startswith(b"HTTP/1.1 503 "), answered
            assert b"MODELKIN_MAX_CONNECTIONS" in answered
        clients[0].sendall(GET.encode())
        assert b"200 OK" in clients[0].recv(1 << 16)
    until = time.monotonic() + 5
    while b"200 OK" not in limited.ask(GET) and time.monotonic() < until:
        time.sleep(0.05)
    assert b"200 OK" in limited.ask(GET)
