"""A light HTTP client in a process of its own: raw keep-alive sockets, one request in flight each.

It takes a fraction of what a common client takes, so that a server of one process is what is
measured. ``python -m benchmarks.light_client`` reads requests from its standard input.
"""

from __future__ import annotations

import json
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Load", "Loader", "loader"]

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Load:
    """The load that a server bore: answers a second, and the median seconds of one."""

    rate: float
    p50: float


class Loader:
    """The client process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def get(
        self,
        *urls: str,
        seconds: float,
        connections: int = 8,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Load:
        """Ask for URLs of one server in turn, on each connection as soon as it has its answer.

        Raises:
            RuntimeError: an answer has another status.
        """
        asked = {"urls": urls, "seconds": seconds, "connections": connections, "status": status}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**asked, "headers": dict(headers or {})}) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        if "error" in found:
            raise RuntimeError(f"{urls[0]}: {found['error']}")
        return Load(**found)


@contextmanager
def loader() -> Iterator[Loader]:
    """The client process, for the duration of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.light_client"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Loader(process)
    finally:
        process.terminate()
        process.communicate()


def _load(
    urls: list[str], seconds: float, connections: int, status: int, headers: Mapping[str, str]
) -> dict[str, Any]:
    address = urlsplit(urls[0])
    requests = cycle([_request(url, headers) for url in urls])
    expected = f"HTTP/1.1 {status} ".encode()
    ready = selectors.DefaultSelector()
    asked: dict[socket.socket, float] = {}
    took: list[float] = []
    begin = now = time.perf_counter()
    for _ in range(connections):
        opened = socket.create_connection((address.hostname, address.port), timeout=30)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ready.register(opened, selectors.EVENT_READ)
        asked[opened] = time.perf_counter()
        opened.sendall(next(requests))
    while now - begin < seconds:
        for key, _ in ready.select():
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            answer = _answer(connection)
            now = time.perf_counter()
            took.append(now - asked[connection])
            if not answer.startswith(expected):
                return {"error": answer[:300].decode(errors="replace")}
            asked[connection] = now
            connection.sendall(next(requests))
    for connection in asked:
        _answer(connection)  # the last one, so that the server is idle again
        connection.close()
    return {"rate": len(took) / (now - begin), "p50": statistics.median(took)}


def _request(url: str, headers: Mapping[str, str]) -> bytes:
    address = urlsplit(url)
    path = f"{address.path}?{address.query}" if address.query else address.path
    lines = [f"GET {path} HTTP/1.1", f"Host: {address.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def _answer(connection: socket.socket) -> bytes:
    """A whole answer with its head: all have a length, or no body."""
    answer = connection.recv(65536)
    while (end := answer.find(b"\r\n\r\n")) < 0:
        answer += _more(connection)
    head = answer[:end].lower()
    _, found, length = head.partition(b"\r\ncontent-length: ")
    size = end + 4 + (int(length.partition(b"\r\n")[0]) if found else 0)
    while len(answer) < size:
        answer += _more(connection)
    return answer


def _more(connection: socket.socket) -> bytes:
    piece = connection.recv(65536)
    if not piece:
        raise ConnectionError("the server closed a connection")
    return piece


if __name__ == "__main__":
    for line in sys.stdin:
        try:
            outcome = _load(**json.loads(line))
        except OSError as failed:
            outcome = {"error": str(failed)}
        print(json.dumps(outcome), flush=True)
