"""The limits of connections of a running service."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import httpx
import pytest

from tests.support.backends import SQLITE, Backend
from tests.support.fixtures import Start

SILENT = 40
HEAD_TIMEOUT_S = 10
"""As docs/operations.md says it."""
BUSY_S = 20
"""More than a busy machine adds, and less than the next limit: a body's minute."""


@pytest.fixture
def backend() -> Backend:
    """Connections are the same on every database."""
    return SQLITE


def port_of(answer: httpx.Response) -> int:
    """The client's port of the connection on which an answer came."""
    assert answer.is_success
    stream = answer.extensions["network_stream"]
    return int(stream.get_extra_info("client_addr")[1])


@pytest.mark.long
@pytest.mark.slow
def test_silent_connections_keep_others_out_for_ten_seconds_at_most(start: Start) -> None:
    """Beyond the limit a client is answered with the reason; then the service is there for all. A
    client that has a connection keeps it meanwhile, for longer than HTTP clients use an idle one.
    """
    server = start(f"--max-connections={SILENT}")
    port = int(server.url.rpartition(":")[2])
    idle_s = httpx.Limits().keepalive_expiry or 0
    with (
        ExitStack() as opened,
        httpx.Client(limits=httpx.Limits(keepalive_expiry=60), base_url=server.url) as kept,
    ):
        first = port_of(kept.get("/livez"))
        begun = time.monotonic()
        for _ in range(SILENT - 1):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        answer = httpx.get(f"{server.url}/livez")
        assert (503, "1", "unavailable") == (
            answer.status_code,
            answer.headers["retry-after"],
            answer.json()["code"],
        )
        assert f"{SILENT} connections" in answer.json()["detail"]
        time.sleep(idle_s + 1)
        assert first == port_of(kept.get("/livez"))
        while httpx.get(f"{server.url}/livez").status_code != 200:
            assert time.monotonic() - begun < HEAD_TIMEOUT_S + BUSY_S
            time.sleep(0.2)
        assert time.monotonic() - begun > HEAD_TIMEOUT_S - 3
    assert "MODELKIN_MAX_CONNECTIONS" in server.log.read_text()
