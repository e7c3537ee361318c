"""The clients over real sockets: what a server sees, and what a dead one does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from modelkin.client import Client
from modelkin.core.support import Support
from modelkin.errors import (
    ApiError,
    ConnectionFailed,
    InvalidParameter,
    MissingExtra,
    ModelkinError,
)
from tests.support.blocking_client import Connect, with_pauses


class Recorder(BaseHTTPRequestHandler):
    """Answers 404 and keeps the request; drops the connection of a server's first ``drop`` ones."""

    server: Any
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.seen.append((self.command, self.path, body))
        if len(self.server.seen) <= self.server.drop:
            self.close_connection = True
            return
        self.server.cookies.append(self.headers.get("cookie"))
        self.send_response(404)
        self.send_header("set-cookie", f"seen-{len(self.server.seen)}=1")
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.answer()

    def do_PUT(self) -> None:
        self.answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """The tests read what was seen instead."""


@pytest.fixture
def server() -> Iterator[Any]:
    """A server on a port of its own, with what it has seen."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    http.seen, http.cookies, http.drop = [], [], 0  # type: ignore[attr-defined]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield http
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def dial(connect: Connect) -> Callable[..., Any]:
    """A client of a port, which does not pause between attempts."""
    return lambda port, **options: with_pauses(connect(f"http://127.0.0.1:{port}", **options), [])


def test_a_name_arrives_as_it_was_encoded(server: Any, dial: Callable[..., Any]) -> None:
    """Between the client and the request line nothing re-encodes or collapses the path."""
    with dial(server.server_port) as client, pytest.raises(ApiError):
        client.models.get("digits", "org name/naïve+1@x:y/..z")
    assert [("GET", "/v1/spaces/digits/models/org%20name/na%C3%AFve%2B1%40x%3Ay/..z", b"")] == (
        server.seen
    )


def test_an_upload_survives_a_dropped_connection(server: Any, dial: Callable[..., Any]) -> None:
    """An upload whose connection breaks is sent again, whole."""
    server.drop = 1
    support = Support.from_indices(range(0, 10_000, 7), 10_000)
    with dial(server.server_port) as client, pytest.raises(ApiError):
        client.put_support("digits", "a", support)
    sent = ("PUT", "/v1/spaces/digits/supports/a", support.to_bytes())
    assert [sent, sent] == server.seen


def test_a_closed_port_is_told_in_one_line(dial: Callable[..., Any]) -> None:
    """A closed port is one line with the address and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with dial(port) as client, pytest.raises(ConnectionFailed) as caught:
        client.spaces.get("digits")
    assert (
        f"no modelkin service answers at http://127.0.0.1:{port} (connection refused): "
        f"start one with `modelkin serve`, or set MODELKIN_URL"
    ) == str(caught.value)


def test_a_server_that_never_answers_is_given_up(dial: Callable[..., Any]) -> None:
    """A connection without an answer ends at the timeout, after one try."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        dial(listener.getsockname()[1], timeout=0.05) as client,
        pytest.raises(ConnectionFailed, match="did not finish in time"),
    ):
        client.spaces.get("digits")


def test_a_handshake_that_never_ends_is_given_up(connect: Connect) -> None:
    """A server that speaks no TLS is no service, and the reason is the time that it took."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        connect(f"https://127.0.0.1:{listener.getsockname()[1]}", timeout=0.1, retries=0) as client,
        pytest.raises(ConnectionFailed, match="no connection within the timeout"),
    ):
        client.spaces.get("digits")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_proxy_is_not_asked_for_this_machine(
    host: str, server: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy of the environment does not stand between a client and a service beside it."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    client = connect(f"http://{host}:{server.server_port}", retries=0)
    with client, pytest.raises(ApiError, match="404"):
        client.spaces.get("digits")


def test_a_proxy_is_asked_for_others(
    server: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service elsewhere is reached through the proxy of the environment."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.server_port}")
    with connect("http://kin.test", retries=0) as client, pytest.raises(ApiError, match="404"):
        client.spaces.get("digits")
    assert [("GET", "http://kin.test/v1/spaces/digits", b"")] == server.seen


@pytest.mark.parametrize(
    ("proxy", "kind", "said"),
    [
        ("ftp://user:secret@proxy.test", InvalidParameter, "correct HTTP_PROXY"),
        ("http://[::1", InvalidParameter, "correct HTTP_PROXY"),
        ("http://proxy.test:99999", InvalidParameter, "correct HTTP_PROXY"),
        ("http://", InvalidParameter, "correct HTTP_PROXY"),
        ("socks5://proxy.test", MissingExtra, "pip install 'httpx\\[socks\\]'"),
    ],
)
def test_an_unusable_proxy_is_an_error(
    proxy: str,
    kind: type[ModelkinError],
    said: str,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable that names no proxy is refused where the client is made, without its password."""
    monkeypatch.setattr("modelkin.client._transport.config.find_spec", lambda _: None)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(kind, match=said) as caught:
        connect("http://kin.test")
    assert "secret" not in str(caught.value)


def test_cookies_are_not_kept(server: Any, dial: Callable[..., Any]) -> None:
    """A service cannot make a client remember and repeat more with each answer."""
    with dial(server.server_port) as client:
        for _ in range(2):
            with pytest.raises(ApiError):
                client.spaces.get("digits")
    assert [None, None] == server.cookies


def test_threads_may_share_a_client(server: Any) -> None:
    """Requests of several threads over one client all arrive."""
    with Client(f"http://127.0.0.1:{server.server_port}") as client:
        threads = [
            threading.Thread(target=_ask, args=(client, f"model-{number}")) for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {f"/v1/spaces/digits/models/model-{number}" for number in range(8)} == {
        path for _, path, _ in server.seen
    }


def _ask(client: Client, name: str) -> None:
    with pytest.raises(ApiError):
        client.models.get("digits", name)
