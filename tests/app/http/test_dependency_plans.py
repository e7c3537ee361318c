"""The plan of an operation: what FastAPI would call, in its order, once for each request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import SecurityScopes
from pydantic import BaseModel
from starlette.testclient import TestClient

from app.infra.http import route_index
from app.infra.http.endpoint_threads import ThreadRoute
from app.main import ENDPOINTS

CALLS: list[str] = []


async def _held(request: Request) -> AsyncIterator[str]:
    CALLS.append(f"hold {request.method}")
    yield "held"
    CALLS.append("give back")


async def _kept() -> AsyncIterator[str]:
    CALLS.append("keep")
    yield "kept"
    CALLS.append("released")


async def _scoped(needed: SecurityScopes) -> str:
    CALLS.append(f"scopes {','.join(needed.scopes)}")
    return ",".join(needed.scopes)


async def _counted(limit: Annotated[int, Query(ge=1, le=9)] = 5) -> int:
    CALLS.append("count")
    return limit


Held = Annotated[str, Depends(_held, scope="function")]
Counted = Annotated[int, Depends(_counted)]


class Found(BaseModel):
    values: list[Any]


def _show(
    name: str,
    held: Held,
    reads: Annotated[str, Security(_scoped, scopes=["read"])],
    writes: Annotated[str, Security(_scoped, scopes=["write"])],
    counted: Counted,
    again: Counted,
    response: Response,
    tag: Annotated[list[str] | None, Query()] = None,
    if_match: Annotated[str | None, Header()] = None,
) -> Found:
    CALLS.append("show")
    response.headers["ETag"] = str(len(name))
    return Found(values=[name, held, reads, writes, counted, again, tag, if_match])


def _app(route: type[APIRoute]) -> FastAPI:
    router = APIRouter(route_class=route)
    router.get("/things/{name}")(_show)
    app = FastAPI()
    app.include_router(router)
    if route is ThreadRoute:
        route_index.install(app.router, [router])
    return app


@pytest.fixture
def clients() -> Iterator[tuple[TestClient, TestClient]]:
    """One of FastAPI's own routes, and one of planned routes."""
    with TestClient(_app(APIRoute)) as plain, TestClient(_app(ThreadRoute)) as planned:
        yield plain, planned


REQUESTS = {
    "nothing given": ("/things/a", {}),
    "all given": ("/things/a%20b?limit=3&tag=x&tag=y", {"If-Match": '"1"'}),
    "a name of another script": ("/things/%C3%A4", {}),
    "a name that cannot be decoded": ("/things/%FF", {}),
    "an empty list": ("/things/a?tag=", {}),
    "an invalid number": ("/things/a?limit=10", {}),
    "no number": ("/things/a?limit=x", {"If-Match": "1"}),
    "another path": ("/things", {}),
}


@pytest.mark.parametrize(("path", "headers"), REQUESTS.values(), ids=REQUESTS)
def test_a_plan_answers_what_fastapi_answers(
    clients: tuple[TestClient, TestClient], path: str, headers: dict[str, str]
) -> None:
    """After the same calls, whether the request is valid or not."""
    found = []
    for client in clients:
        CALLS.clear()
        answer = client.get(path, headers=headers)
        found.append((answer.status_code, answer.json(), answer.headers.get("etag"), list(CALLS)))
    assert found[0] == found[1]


def test_what_is_opened_is_left_before_the_answer_or_after_it() -> None:
    """As FastAPI does, by the scope of the dependency."""
    router = APIRouter(route_class=ThreadRoute)

    @router.get("/")
    def show(kept: Annotated[str, Depends(_kept)], held: Held) -> Found:
        CALLS.append("show")
        return Found(values=[kept, held])

    app = FastAPI()
    app.include_router(router)
    route_index.install(app.router, [router])
    seen: list[list[str]] = []

    class Noted:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def sent(message: Any) -> None:
                if message["type"] == "http.response.body":
                    seen.append(list(CALLS))
                await send(message)

            await self.inner(scope, receive, sent)

    app.add_middleware(Noted)
    CALLS.clear()
    with TestClient(app) as client:
        assert ["kept", "held"] == client.get("/").json()["values"]
    assert ["keep", "hold GET", "show", "give back"] == seen[-1]
    assert "released" == CALLS[-1]


_ROUTES = [
    (method, route)
    for module in ENDPOINTS
    for route in module.router.routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods or ())
]
_NAMES = ["m", "org/model", "models", "v1/spaces", "", "latest"]


@pytest.fixture(scope="module")
def found() -> route_index.RouteIndex:
    return route_index.RouteIndex(None, [route for _, route in _ROUTES])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", _NAMES)
def test_the_index_finds_the_first_route_that_matches(
    found: route_index.RouteIndex, name: str
) -> None:
    """For every path that an operation has, whatever it names."""
    for method, route in _ROUTES:
        path = route.path_format
        for parameter in route.param_convertors:
            path = path.replace(f"{{{parameter}}}", name)
        scope: dict[str, Any] = {"type": "http", "method": method, "path": path}
        first = next(
            (each for asked, each in _ROUTES if asked == method and each.path_regex.match(path)),
            None,
        )
        assert found.find(scope) is first, path
        assert scope.get("route") is first
