"""An object store in memory that is as far away as it is set: the little of S3 that is measured.

It answers PUT, GET with ranges and HEAD, lists nothing, and checks no signature.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote, urlsplit

__all__ = ["object_server"]

_RANGE: Final = re.compile(r"bytes=(\d+)-(\d*)")
_NO_KEYS: Final = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    objects: dict[str, bytes]
    latency_s: float
    bytes_a_second: float
    line: threading.Lock

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.latency_s)
        self._transfer(len(data))
        exists = self._key in self.objects and self.headers.get("If-None-Match") == "*"
        if not exists:
            self.objects[self._key] = data
        self._answer(412 if exists else 200, data)

    def do_GET(self) -> None:
        time.sleep(self.latency_s)
        if "list-type=2" in urlsplit(self.path).query:  # of a start, when there is nothing yet
            self._answer(200, _NO_KEYS, _NO_KEYS)
            return
        data = self.objects.get(self._key)
        if data is None:
            self._answer(404, b"", b"<Error><Code>NoSuchKey</Code></Error>")
            return
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        if asked is None:
            body, status, more = data, 200, {}
        else:
            start = int(asked[1])
            body = data[start : int(asked[2]) + 1 if asked[2] else None]
            end = start + len(body) - 1
            status, more = 206, {"Content-Range": f"bytes {start}-{end}/{len(data)}"}
        self._transfer(len(body))
        self._answer(status, data, body, **more)

    do_HEAD = do_GET  # noqa: N815 (http.server asks)

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path)

    def _transfer(self, size: int) -> None:
        """Take the time that so many bytes take on a line that all requests share."""
        with self.line:
            time.sleep(size / self.bytes_a_second)

    def _answer(self, status: int, data: bytes, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        known = {
            "ETag": f'"{md5(data, usedforsecurity=False).hexdigest()}"',
            "Last-Modified": formatdate(usegmt=True),
            "Content-Length": str(len(body)),
            **headers,
        }
        for name, value in known.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def object_server(*, latency_s: float, bytes_a_second: float) -> Iterator[dict[str, str]]:
    """A store for the duration of the block.

    Args:
        latency_s: seconds that each request takes, besides the transfer.
        bytes_a_second: of all transfers together.

    Returns:
        The variables of its clients.
    """
    kept = {
        "objects": {},
        "latency_s": latency_s,
        "bytes_a_second": bytes_a_second,
        "line": threading.Lock(),
    }
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), kept))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
    finally:
        server.shutdown()
        server.server_close()
