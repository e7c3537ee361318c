"""A receiver of webhooks on loopback; each path behaves as some real receiver does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

__all__ = ["Received", "Receiver", "receiving"]


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)


class Receiver:
    """The requests received so far, by path, and the address of the receiver.

    ``/ok`` answers 204, ``/status/N`` N, ``/later`` 503 and ``Retry-After: 3600``.
    ``/redirect`` redirects to ``/ok``, ``/hang`` never answers, ``/close`` closes the connection,
    and ``/half`` closes it within a 200. ``/endless`` never ends its body, ``/drip`` its header.
    ``/retry-after/WHEN`` answers 503 with that header; ``/held/N`` answers N once released.
    A name may follow the path.
    """

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.released = threading.Event()
        self.url = ""

    def at(self, path: str) -> list[Received]:
        """The requests to a path."""
        return [request for request in self.requests if request.path == path]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver for the duration of the block."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.requests.append(Received(self.path, headers, body))
            self.close_connection = True
            with suppress(OSError):  # the sender has closed the connection, as it should
                _answer(self, receiver)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(handler: BaseHTTPRequestHandler, receiver: Receiver) -> None:
    kind, _, rest = handler.path.removeprefix("/").partition("/")
    if kind == "hang":
        receiver.released.wait(30)
    elif kind == "close":
        return
    elif kind == "drip":
        for byte in b"HTTP/1.1 200 OK\r\n" + b"x-slow: 1\r\n" * 10_000:
            handler.wfile.write(bytes([byte]))
            if receiver.released.wait(0.05):
                return
    elif kind == "half":
        _begin(handler, 200, {"Content-Length": "1000"})
        handler.wfile.write(b"the beginning of")
    elif kind == "endless":
        _begin(handler, 200, {})
        while not receiver.released.is_set():
            handler.wfile.write(b"and so on " * 1000)
    elif kind == "redirect":
        _begin(handler, 307, {"Location": rest or "/ok", "Content-Length": "0"})
    elif kind == "later":
        _begin(handler, 503, {"Retry-After": "3600", "Content-Length": "0"})
    elif kind == "retry-after":
        _begin(handler, 503, {"Retry-After": unquote(rest), "Content-Length": "0"})
    elif kind == "held":
        receiver.released.wait(30)
        _begin(handler, int(rest.partition("/")[0]), {"Content-Length": "0"})
    elif kind == "status":
        _begin(handler, int(rest.partition("/")[0]), {"Content-Length": "5"})
        handler.wfile.write(b"sorry")
    else:
        _begin(handler, 204, {})


def _begin(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str]) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
