"""``Routes``: one way of a request, with one call in a thread beside the look-up of its key."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import numpy as np
import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import event
from starlette.testclient import TestClient

from app.container import Container
from app.infra.db.database import Database
from app.infra.errors import SpaceNotFound
from app.infra.http import openapi, problems
from app.infra.http.answers import Answer
from app.infra.http.request_context import OpenContext
from app.infra.http.requests import json_bodies
from app.infra.http.requests.bodies import BodyLimits
from app.infra.http.requests.json_bodies import JsonBody, JsonParsers
from app.infra.http.requests.json_reading import validate_body
from app.infra.http.requests.memory_budget import Budget, Budgets
from app.infra.http.routes import Routes
from app.infra.http.schemas import RequestModel
from app.infra.http.services import Service
from app.infra.http.turns import Turns
from modelkin.errors import InvalidParameter
from tests.support.app.harness import AppHarness, open_app, open_keyed_app
from tests.support.backends import SQLITE
from tests.support.http_space import SIGNATURE, SUPPORT, random_support

M = 1000


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service that asks for keys, with a space of one model."""
    with open_keyed_app(tmp_path_factory.mktemp("keyed"), SQLITE) as harness:
        harness.create_space("s", M)
        harness.put_support("s", "m", random_support(np.random.default_rng(1), M, 50))
        yield harness


@pytest.fixture
def hand_overs(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """What was handed to threads."""
    seen: list[Callable[..., Any]] = []
    run_sync = anyio.to_thread.run_sync

    async def count(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        seen.append(function)
        return await run_sync(function, *arguments, **options)

    monkeypatch.setattr(anyio.to_thread, "run_sync", count)
    return seen


def _signature() -> bytes:
    return random_support(np.random.default_rng(2), M, 50).signature().to_bytes()


SMALL: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a model": ("GET", "/v1/spaces/s/models/m", {}),
    "its signature": ("GET", "/v1/spaces/s/signatures/m", {}),
    "its support": ("GET", "/v1/spaces/s/supports/m", {}),
    "its revisions": ("GET", "/v1/spaces/s/revisions/m", {}),
    "a space": ("GET", "/v1/spaces/s", {}),
    "its models": ("GET", "/v1/spaces/s/models", {}),
    "neighbours": ("GET", "/v1/spaces/s/neighbors?model=m", {}),
    "jobs": ("GET", "/v1/jobs", {}),
    "a page": ("GET", "/spaces/s", {}),
    "no model": ("GET", "/v1/spaces/s/models/none", {}),
    "no space": ("GET", "/v1/spaces/none/models/m", {}),
    "tags": ("PATCH", "/v1/spaces/s/models/m", {"json": {"tags": ["a"]}}),
    "a signature put": (
        "PUT",
        "/v1/spaces/s/signatures/n",
        {"content": _signature(), "headers": {"Content-Type": SIGNATURE}},
    ),
    "a support put": (
        "PUT",
        "/v1/spaces/s/supports/o",
        {
            "content": random_support(np.random.default_rng(3), M, 50).to_bytes(),
            "headers": {"Content-Type": SUPPORT},
        },
    ),
    "a model deleted": ("DELETE", "/v1/spaces/s/models/o", {}),
}


@pytest.mark.parametrize(("method", "path", "options"), SMALL.values(), ids=SMALL)
def test_a_small_request_is_handed_over_once_beside_its_key(
    keyed: AppHarness,
    hand_overs: list[Callable[..., Any]],
    method: str,
    path: str,
    options: dict[str, Any],
) -> None:
    """Transactions begin and end in the call of the endpoint, and the answer is written there."""
    answer = keyed.http.request(method, path, **options)
    assert answer.status_code in {200, 201, 204, 404}, answer.text
    assert 2 == len(hand_overs), hand_overs


def test_without_keys_it_is_handed_over_once(
    tmp_path: Path, hand_overs: list[Callable[..., Any]]
) -> None:
    """Nothing is looked up, before a body is read either."""
    with open_app(tmp_path) as harness:
        harness.create_space("s", M)
        hand_overs.clear()
        assert 200 == harness.http.get("/v1/spaces/s").status_code
        assert 1 == len(hand_overs)
        assert 404 == harness.http.patch("/v1/spaces/s/models/m", json={"tags": []}).status_code
        assert 2 == len(hand_overs)


def test_a_model_is_read_with_its_tags(tmp_path: Path) -> None:
    """One query of the space and one of the model, for a 304 as for a 200."""
    with open_app(tmp_path) as harness:
        harness.create_space("s", M)
        harness.put_support("s", "m", random_support(np.random.default_rng(1), M, 50))
        tags = {"tags": ["b", "a"]}
        harness.http.patch("/v1/spaces/s/models/m", json=tags).raise_for_status()
        read: list[str] = []
        event.listen(
            harness.services[Database].engine,
            "before_cursor_execute",
            lambda *arguments: read.append(arguments[2]),
        )
        whole = harness.http.get("/v1/spaces/s/models/m")
        assert ["a", "b"] == whole.json()["tags"]
        assert 2 == len(read), read
        known = {"If-None-Match": whole.headers["etag"]}
        unchanged = harness.http.get("/v1/spaces/s/models/m", headers=known)
        assert (304, b"") == (unchanged.status_code, unchanged.content)
        assert whole.headers["etag"] == unchanged.headers["etag"]
        assert read[:2] == read[2:]


EVENTS: list[str] = []


class Sessions:
    """Stands for a database: notes when transactions begin and end."""

    def __init__(self, begun: str = "begun") -> None:
        self._begun = begun

    @contextmanager
    def reading(self) -> Iterator[int]:
        EVENTS.append(self._begun)
        try:
            yield threading.get_ident()
        except InvalidParameter as error:
            EVENTS.append(str(error))
            raise
        EVENTS.append("ended")


class Given(BaseModel):
    thread: int


class Secret(Given):
    secret: str = "is in the answer, since nothing validates that again"


class Body(RequestModel):
    number: int


routes = Routes("/things")


@routes.get("/{name}", status_code=202, refuses=(SpaceNotFound,))
def _show(name: str, sessions: Service[Sessions], context: OpenContext) -> Answer[Given]:
    """Show a thing."""
    with sessions.reading() as thread:
        EVENTS.append(f"shown {name} {context.deadline.passed()}")
    return Answer(Given(thread=thread), headers={"ETag": "1"})


@routes.get("/of/errors")
def _fail(context: OpenContext, sessions: Service[Sessions]) -> None:
    with sessions.reading():
        raise InvalidParameter("of the endpoint")


@routes.post("/read", turn="heavy")
def _read(received: JsonBody[Body], context: OpenContext) -> Given:
    return Given(thread=received.read().number + received.read().number)


@routes.delete("/gone", status_code=204)
def _delete(context: OpenContext) -> None:
    EVENTS.append("deleted")


def made(*more: object) -> FastAPI:
    """An application of these operations, with its own services."""
    app = FastAPI()
    budgets = Budgets(*(Budget(1 << 20, 1.0) for _ in range(3)))
    turns = Turns(20, share=0.5, timeout=5, query_timeout=5)
    parsers = JsonParsers(share=0.5, timeout=1.0)
    limits = BodyLimits(1 << 20, 1 << 20, 5.0)
    app.state.services = Container(budgets, turns, parsers, limits, *more)
    routes.add_to(app)
    problems.install(app)
    openapi.install(app, lambda: routes.documentation_router().routes)
    return app


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A client of these operations, of which nothing is noted yet."""
    EVENTS.clear()
    with TestClient(made(Sessions())) as opened:
        yield opened


def test_applications_share_routes_and_no_services() -> None:
    """Each answers with its own, whichever was made last."""
    EVENTS.clear()
    names = "first", "second"
    first, second = (TestClient(made(Sessions(begun=name))) for name in names)
    assert routes.router() is routes.router()
    for client in (first, second, first):
        assert 202 == client.get("/things/a").status_code
    assert ["first", "second", "first"] == EVENTS[::3]


def test_an_operation_without_its_request_is_refused() -> None:
    """Which application it answers for could not be known."""
    blind = Routes()

    @blind.get("/blind")
    def _blind(number: int) -> None:
        del number

    with pytest.raises(TypeError, match="_blind takes neither a context nor the Request"):
        blind.router()


def test_a_transaction_ends_where_the_code_of_an_endpoint_says(
    client: TestClient, hand_overs: list[Callable[..., Any]]
) -> None:
    """In the one thread of its request; the answer has the operation's status, and its own headers.

    Parameters stand in any order.
    """
    answer = client.get("/things/a")
    assert ["begun", "shown a False", "ended"] == EVENTS
    assert (202, "1") == (answer.status_code, answer.headers["ETag"])
    assert threading.get_ident() != answer.json()["thread"]
    assert 1 == len(hand_overs)


def test_a_transaction_ends_with_the_error_of_the_endpoint(client: TestClient) -> None:
    assert 422 == client.get("/things/of/errors").status_code
    assert ["begun", "of the endpoint"] == EVENTS


def test_a_body_is_parsed_once_in_the_thread_of_its_request(
    client: TestClient, hand_overs: list[Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []

    def observed(kind: Any, body: bytes) -> Any:
        parsed.append(threading.get_ident())
        return validate_body(kind, body)

    monkeypatch.setattr(json_bodies, "validate_body", observed)
    assert {"thread": 14} == client.post("/things/read", json={"number": 7}).json()
    assert (1, 1) == (len(parsed), len(hand_overs))
    refused = client.post("/things/read", json={"number": "x", "more": 1})
    assert (422, {"number", "more"}) == (
        refused.status_code,
        {each["field"] for each in refused.json()["errors"]},
    )


def test_nothing_is_answered_with_nothing(client: TestClient) -> None:
    answer = client.delete("/things/gone")
    assert (204, b"", ["deleted"]) == (answer.status_code, answer.content, EVENTS)


def test_the_document_shows_what_the_signature_says(client: TestClient) -> None:
    """The model of a body, which FastAPI does not read, the answer's, and what is refused."""
    document = client.get("/openapi.json").json()
    shown = document["paths"]["/things/{name}"]["get"]
    assert "Show a thing." == shown["description"]
    assert {"202", "404", "421"} == set(shown["responses"])
    assert "#/components/schemas/Given" in str(shown["responses"]["202"])
    read = document["paths"]["/things/read"]["post"]
    assert "#/components/schemas/Body" in str(read["requestBody"])
    assert {"408", "413", "415", "422"} <= set(read["responses"])
    assert {"number"} == set(document["components"]["schemas"]["Body"]["properties"])
