"""One reading: a table of requests that two readers could understand differently."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import h11
import pytest

from app.server.strict_h11 import StrictConnection
from tests.app.server.reading import bodies, heads
from tests.app.server.reading.cases import NEXT, Case
from tests.support.servers.server_process import Server

TABLE: Final = {
    "length": bodies.LENGTHS,
    "coding": bodies.CODINGS,
    "chunk": bodies.CHUNKS,
    "trailer": bodies.TRAILERS,
    "line": heads.LINES,
    "field": heads.FIELDS,
    "host": heads.HOSTS,
    "intent": heads.INTENTS,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service, which asks for keys: it answers to any name. Its log names nothing smuggled."""
    running = Server(tmp_path_factory.mktemp("service"), "--auth=required").start()
    yield running
    assert running.stop() == 0
    log = running.log.read_text()
    assert "/livez" in log or "/sign-in" in log
    assert "smuggled" not in log
    assert "Traceback" not in log, log[-6000:]


def _answers(service: Server, case: Case) -> bytes:
    """All that is answered to a case, and to the next request, until the service closes."""
    host, port = service.url.removeprefix("http://").split(":")
    sent = (case.sent + ("" if case.ends else NEXT)).encode("latin-1")
    with socket.create_connection((host, int(port)), timeout=20) as client, suppress(OSError):
        answered = b""
        client.sendall(sent)
        if case.ends and not case.answered:
            client.shutdown(socket.SHUT_WR)
        while received := client.recv(1 << 16):
            answered += received
    return answered


def _statuses(answered: bytes) -> tuple[int, ...]:
    return tuple(int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answered))


@pytest.mark.parametrize("cases", TABLE.values(), ids=TABLE)
def test_a_request_has_one_reading(service: Server, cases: dict[str, Case]) -> None:
    """What is ambiguous is refused and its connection closed; else the next request is answered."""
    answered = {name: _statuses(_answers(service, case)) for name, case in cases.items()}
    assert {name: case.answered for name, case in cases.items()} == answered


def _read(sent: bytes, piece: int) -> tuple[bytes, str]:
    """The body of a request that comes in pieces, and how its reading ends."""
    connection, body = StrictConnection(), b""
    try:
        for start in range(0, len(sent), piece):
            connection.receive_data(sent[start : start + piece])
            while (event := connection.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Data):
                    body += event.data
                elif not isinstance(event, h11.Request):
                    return body, "whole"
    except h11.RemoteProtocolError:
        return b"", "refused"
    return body, "begun"


@pytest.mark.parametrize("cases", TABLE.values(), ids=TABLE)
def test_pieces_change_no_reading(cases: dict[str, Case]) -> None:
    """However the network cuts the bytes of a request, it means the same."""
    short = {name: case.sent.encode("latin-1") for name, case in cases.items()}
    short = {name: sent for name, sent in short.items() if len(sent) < 1000}
    whole = {name: _read(sent, len(sent)) for name, sent in short.items()}
    for size in (1, 2, 3, 7):
        assert whole == {name: _read(sent, size) for name, sent in short.items()}


def test_the_table_is_long_enough() -> None:
    """It has at least 154 cases, and no two of them are the same."""
    sent = [case.sent + str(case.ends) for cases in TABLE.values() for case in cases.values()]
    assert len(sent) >= 154
    assert len(sent) == len(set(sent))
