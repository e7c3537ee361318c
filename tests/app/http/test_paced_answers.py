"""Large answers on their way: in pieces, and no longer than a client may take to receive them."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import BaseModel
from pydantic_core import to_json

from app.container import Container
from app.infra.http.answers import ABORT, binary_answer, list_answer, list_pieces, streamed_answer
from app.infra.http.requests.bodies import BodyLimits
from app.infra.http.requests.memory_budget import Budget, Budgets, Reservation
from app.search.endpoints.similarity import CSV, PIECES
from modelkin import Support
from modelkin.types.search import SimilarityMatrix
from tests.support.fixtures import Start, on_one_database
from tests.support.http_space import JSON, RAW, SUPPORT

KIB = 1 << 10
Send = Callable[[dict[str, Any]], Awaitable[None]]


def sent(answer: Any, take: Callable[[int], Awaitable[None]], timeout: float) -> list[bytes]:
    """The pieces of the body that a client received.

    Args:
        take: awaited before the client takes so many bytes more.
        timeout: for the first bytes, and again for each further 8 MiB.
    """
    pieces: list[bytes] = []
    ended: list[bool] = []

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            await take(len(message["body"]))
            pieces.append(message["body"])
            ended.append(not message.get("more_body", False))

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    services = Container(BodyLimits(1 << 30, 1 << 20, timeout))
    app = SimpleNamespace(state=SimpleNamespace(services=services))
    scope = {"type": "http", "app": app, "asgi": {"spec_version": "2.4"}}
    left = asyncio.Event()
    scope["extensions"] = {ABORT: left.set}
    asyncio.run(asyncio.wait_for(answer(scope, receive, send), 10))
    return [*pieces, b"<end>"] if ended[-1:] == [True] else pieces


async def at_once(_: int) -> None:
    """A client that takes all it gets."""


async def never(size: int) -> None:
    """A client that has stopped reading."""
    del size
    await asyncio.Event().wait()


def test_a_large_answer_is_sent_in_pieces() -> None:
    """They are the body, of the length that was announced."""
    body = bytes(range(256)) * 4 * KIB
    answer = binary_answer(body, "application/octet-stream", {"ETag": '"1"'})
    pieces = sent(answer, at_once, timeout=5)
    assert len(pieces) > 3
    assert body + b"<end>" == b"".join(pieces)
    assert (str(len(body)), '"1"') == (answer.headers["content-length"], answer.headers["etag"])


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_stops_reading_is_cut_off(streamed: bool) -> None:
    """The answer ends without its end, so that the server closes the connection."""
    body = bytes(1 << 20)
    if streamed:
        answer = streamed_answer(iter([body, body]), "application/json", {})
    else:
        answer = binary_answer(body, "application/octet-stream", {})
    assert [] == sent(answer, never, timeout=0.05)


@on_one_database
@pytest.mark.slow
def test_a_connection_that_is_not_read_is_closed_with_what_waits_in_it(start: Start) -> None:
    """The service closes its socket with all that is in it, and logs no fault."""
    server = start("--body-timeout-seconds=0.5")
    m = 5_000_000
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        assert http.post("/v1/spaces", json={"name": "s", "num_parameters": m}).is_success
        content = Support.from_indices(np.arange(m // 2) * 2, m).to_bytes()
        headers = {"Content-Type": SUPPORT}
        assert http.put("/v1/spaces/s/supports/m", content=content, headers=headers).is_success
    host, port = server.url.removeprefix("http://").split(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        request = f"GET /v1/spaces/s/supports/m HTTP/1.1\r\nHost: {host}\r\nAccept: {RAW}\r\n\r\n"
        client.sendall(request.encode())
        assert client.recv(12) == b"HTTP/1.1 200"
        ends = int(port), client.getsockname()[1]
        assert _is_open(*ends)
        end = time.monotonic() + 10
        while _is_open(*ends):
            assert time.monotonic() < end
            time.sleep(0.05)
    assert "without completing" not in server.log.read_text()


def _is_open(port: int, peer: int) -> bool:
    """Whether the process at a port has its end of a connection open."""
    open_ones = (
        (line[1][-5:], line[2][-5:])
        for line in map(str.split, Path("/proc/net/tcp").read_text().splitlines())
        if line[3] == "01"
    )
    return (f":{port:04X}", f":{peer:04X}") in open_ones


def test_memory_for_an_answer_is_given_back() -> None:
    """It is held apart from that of bodies, until the answer has been sent."""
    budgets = Budgets(bodies=Budget(1, 0), decoded=Budget(1, 0), answers=Budget(100, 0))
    with budgets.answering("a") as hold:
        hold.take(60)
        assert (0, 0, 60) == (budgets.bodies.held, budgets.decoded.held, budgets.answers.held)
    assert 0 == budgets.answers.held


class Facts(BaseModel):
    """What stands beside a list."""

    name: str
    items: list[int] | None


@pytest.mark.parametrize("items", [None, [], [1], list(range(100_000))])
def test_a_list_is_written_entry_by_entry(items: list[int] | None) -> None:
    """All of it is JSON, no piece is long, and what was reserved beyond it is given back."""
    written = None if items is None else map(to_json, items)
    pieces = list(list_pieces("items", written, Facts(name="x", items=None)))
    assert {"name": "x", "items": items} == json.loads(b"".join(pieces))
    assert max(map(len, pieces)) < 300 * KIB
    hold = Reservation(Budget(1 << 30, 0), "a")
    hold.take(1 << 20)
    written = None if items is None else map(to_json, items)
    list_answer("items", written, {"name": "x"}, hold)
    assert sum(map(len, pieces)) == hold.size


def test_a_matrix_is_written_row_by_row() -> None:
    """As JSON and as CSV; no call writes more than a row."""
    names = tuple(f"m{number}" for number in range(300))
    matrix = SimilarityMatrix(names, np.random.default_rng(1).random((300, 300)), ())
    for media_type in (JSON, CSV):
        pieces = list(PIECES[media_type](matrix))
        assert len(pieces) > 300
        assert max(map(len, pieces)) < 10 * KIB
