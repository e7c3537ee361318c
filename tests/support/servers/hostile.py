"""Servers that lie: each connection is read up to the end of a head, and gets raw bytes."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

__all__ = ["HostileServer", "Script", "chunk", "endless", "head", "hostile_server"]

Script: TypeAlias = Callable[[], Iterator[bytes | float]]
"""Yields what is sent, and seconds to wait."""


class HostileServer:
    """A server on loopback that answers every request by a script.

    Args:
        script: what each connection gets.

    Attributes:
        closed: is set once a client has closed its connection.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.closed = threading.Event()
        self.over = threading.Event()
        self.sent = 0
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        self._threads[0].start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(30)
            with contextlib.suppress(OSError):
                _read_head(connection)
                for step in self._script():
                    if self.over.is_set():
                        return
                    if isinstance(step, bytes):
                        connection.sendall(step)
                        self.sent += len(step)
                    elif _is_closed(connection, step):
                        break
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
            self.closed.set()

    def close(self) -> None:
        """End all connections."""
        self.over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(30)


@contextlib.contextmanager
def hostile_server(script: Script) -> Iterator[HostileServer]:
    """A server for the duration of a block."""
    server = HostileServer(script)
    try:
        yield server
    finally:
        server.close()


def head(*lines: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """The head of an answer."""
    told = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *lines]
    return "".join(f"{line}\r\n" for line in (*told, "")).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """A chunk of a body (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def endless(data: bytes, pause: float | None = None) -> Iterator[bytes | float]:
    """The same bytes until the client closes the connection, with pauses between them."""
    while True:
        yield data
        if pause is not None:
            yield pause


def _is_closed(connection: socket.socket, seconds: float) -> bool:
    """Wait, and return early once the client has closed the connection."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(seconds * 1e3))


def _read_head(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(1 << 16)
        if not piece:
            raise ConnectionResetError
        data += piece
