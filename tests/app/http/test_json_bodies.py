"""JSON bodies: read in time that their size says, in a thread, in memory of the budget."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Response
from pydantic import BaseModel, PrivateAttr, model_validator
from starlette.testclient import TestClient

from app.container import Container
from app.infra.http import problems
from app.infra.http.request_context import OpenContext
from app.infra.http.requests import json_bodies
from app.infra.http.requests.bodies import BodyLimits
from app.infra.http.requests.json_bodies import (
    DECODED_BYTES_PER_BYTE,
    QUICK_BYTES,
    JsonBody,
    JsonParsers,
)
from app.infra.http.requests.json_reading import Validation, validate_body
from app.infra.http.requests.memory_budget import Budget, Budgets
from app.infra.http.routes import Routes
from app.infra.http.schemas import RequestModel
from app.infra.http.services import Service
from app.infra.http.turns import Turns
from app.infra.subprocesses import CallProcess
from tests.support.fixtures import Start, on_one_database
from tests.support.http_space import JSON, Space, assert_problem

MIB = 1 << 20
NAMES = [f'"{number:x}":0' for number in range(MIB // 10)]

_PATIENCE_S = 15.0
"""What a body may take beside many other tests; without bounds one took 20 s on an idle machine."""
HOSTILE: dict[str, tuple[str, bytes]] = {
    "a name twice": ("similarity", f"{{{','.join([*NAMES, NAMES[-1]])}}}".encode()),
    "unknown names": ("similarity", f"{{{','.join(NAMES)}}}".encode()),
    "tags of numbers": ("models/stored", b'{"tags":[%b]}' % b",".join([b"0"] * 500_000)),
    "one tag": ("models/stored", b'{"tags":[%b]}' % b",".join([b'"a"'] * 250_000 + [b'""'])),
    "arrays": ("models/stored", b'{"tags":[%b]}' % b",".join([b"[]"] * 340_000)),
}


@pytest.mark.slow
@on_one_database
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_body_takes_no_longer_than_its_size_says(untouched: Space, case: str) -> None:
    """A megabyte is answered in seconds at most, and others are answered meanwhile."""
    path, body = HOSTILE[case]
    assert len(body) <= MIB
    method = "POST" if path == "similarity" else "PATCH"
    headers = {"Content-Type": JSON}
    with ThreadPoolExecutor(1) as thread:
        began = time.monotonic()
        sent = thread.submit(
            untouched.http.request, method, untouched.path(path), content=body, headers=headers
        )
        worst = 0.0
        while not sent.done():
            asked = time.monotonic()
            assert 200 == untouched.http.get("/livez").status_code
            worst = max(worst, time.monotonic() - asked)
            time.sleep(0.01)
    assert 422 == sent.result().status_code
    assert time.monotonic() - began < _PATIENCE_S
    assert worst < _PATIENCE_S / 2


@on_one_database
def test_a_layout_of_numbers_is_one_mistake(untouched: Space) -> None:
    """The first wrong tensor is named; half a million of them took 20 s."""
    body = b'{"name":"a","num_parameters":5,"layout":[%b]}' % b",".join([b"0"] * 500_000)
    began = time.monotonic()
    answer = untouched.http.post("/v1/spaces", content=body, headers={"Content-Type": JSON})
    assert_problem(answer, 422, "invalid_parameter", "layout[0]")
    assert time.monotonic() - began < _PATIENCE_S


# --- an application of one operation ----------------------------------------------------------


class Texts(RequestModel):
    """A body that knows which process and thread has validated it."""

    texts: list[str]
    _reader: tuple[int, int] = PrivateAttr((0, 0))

    @model_validator(mode="after")
    def _observed(self) -> Texts:
        self._reader = os.getpid(), threading.get_ident()
        return self

    @property
    def reader(self) -> tuple[int, int]:
        """The process and the thread."""
        return self._reader


BUDGETS = Budgets(*(Budget(1 << 30, 1.0) for _ in range(3)))
SEEN: list[tuple[int, int]] = []
"""What bodies and their decoding held when one was validated."""
routes = Routes()


class Counted(BaseModel):
    where: str
    texts: int
    held: int


@routes.post("/texts")
def _count(context: OpenContext, received: JsonBody[Texts]) -> Counted:
    body = received.read()
    process, thread = body.reader
    assert process != os.getpid() or thread == threading.get_ident()
    where = "process" if process != os.getpid() else "thread"
    return Counted(where=where, texts=len(body.texts), held=BUDGETS.decoded.held)


PARSING: list[int] = []


@routes.get("/parsing")
def _parse(parsers: Service[JsonParsers], context: OpenContext, size: int, tenant: str) -> Response:
    """How many texts of this size are parsed meanwhile, on threads of their requests."""
    with parsers.reading_on_thread(tenant, size):
        PARSING.append(size)
        time.sleep(0.05)
        beside = len(PARSING)
        PARSING.remove(size)
        return Response(str(beside))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "tenants", "most"),
    [(QUICK_BYTES + 1, "a", 1), (QUICK_BYTES + 1, "ab", 2), (QUICK_BYTES, "a", 8)],
)
def test_long_texts_are_parsed_on_threads_a_few_at_a_time(
    app: TestClient, size: int, tenants: str, most: int
) -> None:
    """A tenant parses one, and all together two; short ones need no turn."""
    with ThreadPoolExecutor(8) as clients:
        asked = [
            clients.submit(
                app.get, "/parsing", params={"size": size, "tenant": tenants[at % len(tenants)]}
            )
            for at in range(8)
        ]
        assert most >= max(int(each.result().text) for each in asked) >= min(most, 2)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """An application of this operation."""

    def observed(kind: Any, body: bytes) -> Validation:
        SEEN.append((BUDGETS.bodies.held, BUDGETS.decoded.held))
        return validate_body(kind, body)

    def call(child: CallProcess, function: Any, *arguments: Any) -> Any:
        assert function is observed
        SEEN.append((BUDGETS.bodies.held, BUDGETS.decoded.held))
        return here_or_there(child, validate_body, *arguments)

    here_or_there = CallProcess.call
    monkeypatch.setattr(json_bodies, "validate_body", observed)
    monkeypatch.setattr(CallProcess, "call", call)
    app = FastAPI()
    parsers = JsonParsers(share=0.5, timeout=1.0)
    turns = Turns(20, share=0.5, timeout=5, query_timeout=5)
    app.state.services = Container(BUDGETS, BodyLimits(MIB, MIB, 5.0), parsers, turns)
    routes.add_to(app)
    problems.install(app)
    SEEN.clear()
    with TestClient(app) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "where"), [(10, "thread"), (2000, "thread"), (50_000, "process")]
)
def test_a_body_is_parsed_and_validated_once_the_further_away_the_longer_it_is(
    app: TestClient, count: int, where: str
) -> None:
    """It holds memory while it is, and none when it is answered."""
    body = json.dumps({"texts": ["ab"] * count}).encode()
    answer: dict[str, Any] = {"where": ""}
    end = time.monotonic() + 60
    while (
        where != answer["where"] and time.monotonic() < end
    ):  # a process that starts is waited for
        SEEN.clear()
        answer = app.post("/texts", content=body, headers={"Content-Type": JSON}).json()
        time.sleep(0.1 if where == "process" else 0.0)
    assert (count, where) == (answer["texts"], answer["where"])
    ((received, decoded),) = SEEN
    assert received >= len(body)
    assert DECODED_BYTES_PER_BYTE * len(body) == decoded
    assert 0 == BUDGETS.bodies.held == BUDGETS.decoded.held


def test_a_body_that_is_mostly_blank_holds_little_once_it_is_validated(app: TestClient) -> None:
    """It may wait long for its turn: what it does not need is then another request's."""
    body = b'{"texts":["ab"]}' + b" " * (MIB - 100)
    answer = app.post("/texts", content=body, headers={"Content-Type": JSON}).json()
    assert (1, 32 * len(body)) == (answer["texts"], SEEN[0][1])
    assert answer["held"] < 5 * MIB


@on_one_database
@pytest.mark.slow
def test_a_body_waits_for_memory(start: Start) -> None:
    """Bodies that together decode to more than the budget are read one after the other."""
    server = start(f"--max-inflight-body-bytes={80 * MIB}")
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        body = b'{"models":[%b]}' % b",".join([b'"ab"'] * 200_000)
        headers = {"Content-Type": JSON}
        http.post("/v1/spaces", json={"name": "s", "num_parameters": 9})
        before = server.memory

        def ask(_: int) -> int:
            path = "/v1/spaces/s/similarity"
            return http.post(path, content=body, headers=headers).status_code

        with ThreadPoolExecutor(16) as clients:
            assert set(clients.map(ask, range(16))) == {422}
        assert server.peak_memory - before < 100 * MIB
