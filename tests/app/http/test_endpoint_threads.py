"""Hand-overs between the event loop and threads: a key's look-up, and one call for all the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio.to_thread
import numpy as np
import pytest
from fastapi import APIRouter, Depends, FastAPI, Response
from pydantic import BaseModel
from starlette.testclient import TestClient

from app.infra.http.endpoint_threads import ThreadRoute, in_endpoint_thread
from app.infra.http.short_reads import ShortReads
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

    call = ShortReads.call

    async def count_short(self: ShortReads, function: Callable[[], Any]) -> Any:
        seen.append(function)
        return await call(self, function)

    monkeypatch.setattr(anyio.to_thread, "run_sync", count)
    monkeypatch.setattr(ShortReads, "call", count_short)
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


class Given(BaseModel):
    thread: int
    same: bool


class Secret(Given):
    secret: str = "is not in the answer"


EVENTS: list[str] = []
_router = APIRouter(route_class=ThreadRoute)


@in_endpoint_thread
@contextmanager
def _begun() -> Iterator[list[int]]:
    EVENTS.append("begun")
    try:
        yield [threading.get_ident()]
    except ValueError as error:
        EVENTS.append(str(error))
        raise
    EVENTS.append("ended")


Begun = Annotated[list[int], Depends(_begun)]


@in_endpoint_thread
def _looked_up(session: Begun) -> list[int]:
    EVENTS.append("looked up")
    return session


LookedUp = Annotated[list[int], Depends(_looked_up)]


@_router.get("/", status_code=202)
def _show(found: LookedUp, session: Begun, response: Response) -> Given:
    response.headers["ETag"] = "1"
    EVENTS.append("shown")
    return Secret(thread=session[0], same=found is session)


@_router.get("/error")
def _fail(found: LookedUp) -> Given:
    raise ValueError(f"of the endpoint, {len(found)}")


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A client of these operations, of which nothing is noted yet."""
    EVENTS.clear()
    app = FastAPI()
    app.include_router(_router)
    with TestClient(app) as opened:
        yield opened


def test_what_an_endpoint_uses_begins_once_and_ends_before_the_answer_leaves(
    client: TestClient, hand_overs: list[Callable[..., Any]]
) -> None:
    """All in one thread; the answer has the status and headers of the operation, and its type."""
    answer = client.get("/")
    assert ["begun", "looked up", "shown", "ended"] == EVENTS
    assert (202, "1") == (answer.status_code, answer.headers["ETag"])
    assert {"thread", "same"} == set(answer.json())
    assert answer.json()["same"]
    assert 1 == len(hand_overs)


def test_what_began_ends_with_the_error_of_the_endpoint(client: TestClient) -> None:
    """As a transaction that is rolled back."""
    with pytest.raises(ValueError, match="of the endpoint"):
        client.get("/error")
    assert ["begun", "looked up", "of the endpoint, 1"] == EVENTS
