"""A proxy before an S3 of the tests: slow, silent, away, or one that loses, cuts and repeats."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal
from urllib.parse import urlsplit

__all__ = ["FAULTS", "Fault", "Lie", "S3Proxy", "s3_proxy"]

Fault = Literal["", "slow down", "reset", "lost", "cut", "twice", "slow", "denied", "stall"]
FAULTS: Final[tuple[Fault, ...]] = ("slow down", "reset", "lost", "cut", "twice", "slow")
"""Answers 503; ends the connection before, or after, the store has the request; cuts the body;
asks the store twice; waits. ``denied`` is an answer of credentials without that right; ``stall``
holds a request until there is another fault, or none, and then passes it on, however late.
"""
_PASSED = ("content-type", "etag", "last-modified", "content-range", "accept-ranges")


class Lie:
    """What a proxy says that the store does not: nothing, unless a method is overridden."""

    def path(self, path: str) -> str:
        """The path that is asked for in place of another."""
        return path

    def headers(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers of a GET that are passed on."""
        return headers

    def answer(
        self, status: int, headers: dict[str, str], content: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """The answer to a GET."""
        return status, headers, content


class S3Proxy:
    """The state of the proxy.

    Attributes:
        fault: of the next request, by its method and path; none by default.
        asked: how many requests of each method there were.
        delay: seconds that every request takes more.
        lie: changes a request's path before it is passed on, and its answer afterwards.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.state: tuple[Callable[[str, str], Fault], threading.Event]
        self.state = (lambda _method, _path: ""), threading.Event()
        """The fault, and what is set once there is another one."""
        self.asked: Counter[str] = Counter()
        self.delay = 0.0
        self.lie: Lie = Lie()
        self.url = ""
        self._server: _Server | None = None

    def start(self, port: int = 0) -> None:
        """Listen on loopback, at a free port unless one is given."""
        server = _Server(("127.0.0.1", port), type("Handler", (_Handler,), {"proxy": self}))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self._server, self.url = server, f"http://127.0.0.1:{server.server_port}"

    def stop(self) -> None:
        """Refuse connections, and end those that there are."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Refuse connections for the duration of the block, and end those that there are."""
        self.stop()
        try:
            yield
        finally:
            self.start(urlsplit(self.url).port or 0)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Hold all requests for the duration of the block; then they go on to the store."""
        self.fail("stall")
        try:
            yield
        finally:
            self.fail("")

    @property
    def fault(self) -> Callable[[str, str], Fault]:
        return self.state[0]

    @fault.setter
    def fault(self, fault: Callable[[str, str], Fault]) -> None:
        _, ended = self.state
        self.state = fault, threading.Event()  # together: no request sees one without the other
        ended.set()

    def fail(self, fault: Fault, *methods: str) -> None:
        """From now on all requests, or those of some methods, have this fault."""
        self.fault = lambda method, _: fault if not methods or method in methods else ""


class _Handler(BaseHTTPRequestHandler):
    proxy: S3Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.proxy.asked[self.command] += 1
        fault_of, ended = self.proxy.state
        fault = fault_of(self.command, self.path)
        time.sleep(self.proxy.delay + (0.2 if fault == "slow" else 0))
        if fault == "stall":
            ended.wait()
        if fault == "slow down":
            self._answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
            return
        if fault == "denied":
            self._deny(body)
            return
        if fault == "reset":
            self._hang_up()
            return
        if fault == "twice":
            self._ask(body)
        answer, content = self._ask(body)
        if fault == "lost":
            self._hang_up()
            return
        headers = {name: answer.headers[name] for name in _PASSED if name in answer.headers}
        if self.command == "HEAD" and "content-length" in answer.headers:
            headers["Content-Length"] = answer.headers["content-length"]
        status = answer.status
        if self.command == "GET":
            status, headers, content = self.proxy.lie.answer(status, headers, content)
        self._answer(status, headers, content, cut=fault == "cut")

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass_on  # noqa: N815 (http.server asks)

    def _deny(self, body: bytes) -> None:
        """Answer as S3 does: where several objects are deleted, for each of them."""
        denied = b"<Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        keys = re.findall(rb"<Key>[^<]*</Key>", body)
        if self.command != "POST":
            self._answer(403, {}, b"<Error>" + denied)
            return
        errors = b"".join(b"<Error>" + key + denied for key in keys)
        self._answer(200, {}, b"<DeleteResult>" + errors + b"</DeleteResult>")

    def _ask(self, body: bytes) -> tuple[HTTPResponse, bytes]:
        upstream = self.proxy.upstream
        connection = HTTPConnection(str(upstream.hostname), upstream.port, timeout=60)
        try:
            path, headers = self.path, dict(self.headers)
            if self.command == "GET":
                path, headers = self.proxy.lie.path(path), self.proxy.lie.headers(headers)
            connection.request(self.command, path, body, headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def _answer(
        self, status: int, headers: dict[str, str], content: bytes, *, cut: bool = False
    ) -> None:
        self.send_response(status)
        if "Content-Length" not in headers:
            headers = {**headers, "Content-Length": str(len(content))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        super().__init__(address, handler)
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End the connections that there are."""
        for connection in tuple(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: Any) -> None:
        """A client may leave before its answer."""


@contextmanager
def s3_proxy(upstream: str) -> Iterator[S3Proxy]:
    """A proxy without faults, for the duration of the block."""
    proxy = S3Proxy(upstream)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.fail("")
        proxy.stop()
