"""Stores of merges: what a shared folder and a bucket both promise, and what they say when away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from modelkin.errors import ConnectionFailed, InvalidParameter
from modelkin.sharing import BucketStore, FolderStore, Store
from tests.support.servers.s3_proxy import s3_proxy
from tests.support.servers.s3_server import S3


def require_contract(store: Store) -> None:
    """What was put is there, whole or in part, and stays; what is not there is None."""
    assert store.get("july/1/cells/0", 10) is None
    store.put("july/1/cells/0", b"0123456789")
    store.put("july/1/cells/0", b"another")
    store.put("july/1/empty", b"")
    assert b"0123456789" == store.get("july/1/cells/0", 10)
    assert b"0123" == store.get("july/1/cells/0", 4)
    assert b"" == store.get("july/1/empty", 10)


def test_a_folder(tmp_path: Path) -> None:
    """No part of a file is left, and a folder that is not mounted is not made."""
    require_contract(FolderStore(tmp_path))
    assert 2 == len([path for path in tmp_path.rglob("*") if path.is_file()])
    away = FolderStore(tmp_path / "drive")
    with pytest.raises(ConnectionFailed, match="drive is not there"):
        away.get("july/terms", 10)
    with pytest.raises(ConnectionFailed, match="drive is not there"):
        away.put("july/terms", b"")
    assert not (tmp_path / "drive").exists()


@pytest.fixture
def bucket(s3: S3, monkeypatch: pytest.MonkeyPatch) -> BucketStore:
    """A bucket of moto's S3."""
    for name, value in s3.variables().items():
        monkeypatch.setenv(name, value)
    return BucketStore(s3.bucket())


def test_a_bucket(bucket: BucketStore, s3: S3) -> None:
    """And one that is not there is away, rather than empty."""
    require_contract(bucket)
    with pytest.raises(ConnectionFailed, match="cannot be read or written now"):
        BucketStore("s3://no-such-bucket/merges").get("july/terms", 10)
    with pytest.raises(InvalidParameter, match="cannot be used"):
        BucketStore("ftp://bucket")


@pytest.mark.parametrize("fault", ["slow down", "reset", "denied"])
def test_a_bucket_that_is_away(s3: S3, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Is never taken for one without the object."""
    with s3_proxy(s3.url) as proxy:
        for name, value in s3.variables(proxy.url).items():
            monkeypatch.setenv(name, value)
        store = BucketStore(s3.bucket())
        store.put("july/terms", b"0")
        proxy.fail(fault)  # type: ignore[arg-type]
        with pytest.raises(ConnectionFailed, match="july/terms cannot be read or written now"):
            store.get("july/terms", 10)
        with pytest.raises(ConnectionFailed, match="july/terms cannot be read or written now"):
            store.put("july/terms", b"")


class _Unconditional(BaseHTTPRequestHandler):
    """A store that refuses conditions, and overwrites."""

    objects: dict[str, bytes]

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        refused = self.headers.get("If-None-Match") is not None
        if not refused:
            self.objects[self.path] = data
        self._answer(501 if refused else 200, b"<Code>NotImplemented</Code>" if refused else b"")

    def do_GET(self) -> None:
        data = self.objects.get(self.path)
        self._answer(404 if data is None else 200, data or b"<Code>NoSuchKey</Code>")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"0"')
        self.send_header("Last-Modified", "Mon, 30 Nov 2026 12:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def unconditional(monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketStore]:
    """A bucket without If-None-Match."""
    handler = type("Handler", (_Unconditional,), {"objects": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name, value in S3(address).variables().items():
        monkeypatch.setenv(name, value)
    yield BucketStore("s3://bucket/merges")
    server.shutdown()
    server.server_close()


def test_a_bucket_without_conditions(unconditional: BucketStore) -> None:
    """Is written all the same: the protocol asks for none."""
    unconditional.put("july/terms", b"one")
    assert b"one" == unconditional.get("july/terms", 10)
    unconditional.put("july/terms", b"two")
    assert b"two" == unconditional.get("july/terms", 10)
