"""Each class of refusal, raised by a live service; by a socket where no healthy one would."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from modelkin import (
    ApiError,
    AuthenticationError,
    BadRequestError,
    ConflictError,
    MediaTypeError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    RateLimitError,
    RequestTooLargeError,
    ServerError,
    Support,
    UnprocessableEntityError,
)
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.blocking_client import Connect
from tests.support.servers.server_process import Server

M = 100_000
SUPPORT = Support.from_indices(range(0, M, 70), M)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that asks for keys and accepts bodies of 16 KiB."""
    folder = tmp_path_factory.mktemp("service")
    running = Server(folder, "--auth=required", "--max-body-bytes=16384").start()
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def key(service: Server) -> str:
    return new_key(service)


@pytest.fixture
def client(service: Server, key: str, connect: Connect) -> Iterator[Any]:
    """Either client with a good key, and a space with two models, one of a signature alone."""
    with connect(service.url, key, retries=0) as client:
        client.ensure_space("s", num_parameters=M)
        client.put_support("s", "a", SUPPORT)
        client.put_signature("s", "b", SUPPORT.signature())
        yield client


REFUSED: dict[str, tuple[type[ApiError], int, str, Callable[[Any], object]]] = {
    "no such space": (NotFoundError, 404, "space_not_found", lambda c: c.neighbors("t", "a")),
    "no such model": (NotFoundError, 404, "model_not_found", lambda c: c.neighbors("s", "c")),
    "another space": (
        *(ConflictError, 409, "space_exists"),
        lambda c: c.ensure_space("s", num_parameters=M + 1),
    ),
    "a signature stored": (
        *(ConflictError, 409, "support_missing"),
        lambda c: c.overlap("s", "a", "b"),
    ),
    "a signature sent": (
        *(UnprocessableEntityError, 422, "support_missing"),
        lambda c: c.donors("s", target=SUPPORT.signature(), method="cover"),
    ),
    "another version": (
        *(PreconditionError, 412, "precondition_failed"),
        lambda c: c.put_support("s", "a", SUPPORT, if_match='"0"'),
    ),
    "too many bytes": (
        *(RequestTooLargeError, 413, "payload_too_large"),
        lambda c: c.put_support("s", "d", Support.from_indices(range(M), M)),
    ),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_refusal_has_the_class_of_its_status(client: Any, refused: str) -> None:
    """A live service's refusals are caught by class; the code says which case it is."""
    kind, status, code, call = REFUSED[refused]
    with pytest.raises(ApiError) as caught:
        call(client)
    error = caught.value
    assert (kind, status, code) == (type(error), error.status, error.problem_code)
    assert error.request_id
    if status == 422:
        assert ["target"] == [entry["field"] for entry in error.errors]


def test_without_a_key(service: Server, connect: Connect) -> None:
    """A missing key is an AuthenticationError."""
    with connect(service.url) as client, pytest.raises(AuthenticationError, match="401 unauth"):
        client.neighbors("s", "a")


def test_a_key_that_may_only_read(service: Server, connect: Connect) -> None:
    """A write with a key to read is a PermissionDeniedError."""
    reader = new_key(service, "--scope", "read")
    with connect(service.url, reader) as client, pytest.raises(PermissionDeniedError, match="403"):
        client.ensure_space("t", num_parameters=M)


@pytest.mark.slow
def test_too_many_writes(connect: Connect, tmp_path: Any) -> None:
    """Beyond the limit a write is a RateLimitError, which says when to try again."""
    server = Server(tmp_path, "--write-rate-limit=1").start()
    try:
        with connect(server.url, retries=0) as client:
            client.ensure_space("s", num_parameters=M)
            with pytest.raises(RateLimitError, match="429 rate_limited") as caught:
                client.put_support("s", "a", SUPPORT)
        assert caught.value.retry_after is not None
        assert 0 < caught.value.retry_after <= 60
    finally:
        server.kill()


@pytest.mark.slow
def test_a_lost_file(connect: Connect, tmp_path: Any) -> None:
    """A stored support that is lost is a ServerError."""
    server = Server(tmp_path).start()
    try:
        with connect(server.url, retries=0) as client:
            client.ensure_space("s", num_parameters=M)
            client.put_support("s", "a", SUPPORT)
            client.put_support("s", "b", Support.from_indices(range(1, M, 70), M))
            shutil.rmtree(server.blobs)
            with pytest.raises(ServerError, match="503 unavailable"):
                client.overlap("s", "a", "b")
    finally:
        server.kill()


class Answerer(BaseHTTPRequestHandler):
    """Answers every request with its server's status."""

    server: Any

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """The tests need no log."""


@pytest.fixture(scope="module")
def answerer() -> Iterator[Any]:
    """A server whose next answer has this ``status`` and these ``headers``."""
    http: Any = ThreadingHTTPServer(("127.0.0.1", 0), Answerer)
    http.status, http.headers = 200, {}
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield http
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, ApiError),
        (307, ApiError),
        (400, BadRequestError),
        (402, ApiError),
        (405, ApiError),
        (406, MediaTypeError),
        (408, ApiError),
        (415, MediaTypeError),
        (418, ApiError),
        (422, UnprocessableEntityError),
        (428, PreconditionError),
        (500, ServerError),
        (502, ServerError),
        (504, ServerError),
        (507, ServerError),
        (599, ServerError),
    ],
)
def test_what_no_healthy_service_answers(
    answerer: Any, connect: Connect, status: int, kind: type[ApiError]
) -> None:
    """The status alone decides, also of answers that are not the service's own."""
    answerer.status, answerer.headers = status, {}
    client = connect(f"http://127.0.0.1:{answerer.server_port}", retries=0)
    with client, pytest.raises(ApiError) as caught:
        client.neighbors("s", "a")
    assert (kind, status) == (type(caught.value), caught.value.status)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"Retry-After": "7"}, 7.0), ({}, None), ({"Retry-After": "soon"}, None)],
)
def test_the_pause_of_a_rate_limit(
    answerer: Any, connect: Connect, headers: dict[str, str], seconds: float | None
) -> None:
    """``retry_after`` is what the header says, in seconds; None where it says nothing."""
    answerer.status, answerer.headers = 429, headers
    client = connect(f"http://127.0.0.1:{answerer.server_port}", retries=0)
    with client, pytest.raises(RateLimitError) as caught:
        client.neighbors("s", "a")
    assert seconds == caught.value.retry_after
