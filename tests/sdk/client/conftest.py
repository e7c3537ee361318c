"""Both clients, as the tests see them: one surface, and a wire that ends in the test.

Whatever asks for ``connect`` or ``wire`` runs twice, over ``Client`` and over ``AsyncClient``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from modelkin.client import AsyncClient, Client
from tests.support.blocking_client import BlockingClient, Connect, with_pauses

Answer = httpx.Response | Exception


class Wire:
    """Carries requests to ``answers`` one by one; records them and the pauses between them."""

    def __init__(self, connect: Connect) -> None:
        self.connect = connect
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []
        self.answers: list[Answer] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        # A copy: sending changes a response, and the tests keep theirs to send again.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def client(self, *answers: Answer, **options: Any) -> Any:
        """A client that gets these answers in turn, the last one again and again."""
        self.answers = list(answers)
        transport = httpx.MockTransport(self)
        client = self.connect("http://kin.test", transport=transport, **options)
        return with_pauses(client, self.pauses)

    @property
    def target(self) -> str:
        """Path and query of the only request, as they stand in the request line."""
        (request,) = self.requests
        return request.url.raw_path.decode()


@pytest.fixture(params=[Client, AsyncClient], ids=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients: as they are, or asynchronous ones behind the same surface."""
    if request.param is Client:
        yield Client
        return
    with asyncio.Runner() as runner:
        yield lambda *arguments, **options: BlockingClient.connect(runner, *arguments, **options)


@pytest.fixture
def wire(connect: Connect) -> Wire:
    return Wire(connect)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on the settings of the user who runs it."""
    for name in ("MODELKIN_URL", "MODELKIN_API_KEY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def opened(connect: Connect) -> Iterator[Callable[..., Any]]:
    """Makes either client over whatever answers requests; pauses go to its ``pauses``."""
    made: list[Any] = []

    def opened(service: Any) -> Any:
        transport = httpx.MockTransport(service)
        client = connect("http://kin.test", transport=transport)
        made.append(with_pauses(client, service.pauses))
        return made[-1]

    yield opened
    for client in made:
        client.__exit__(None, None, None)


SPACE = {
    "name": "digits",
    "num_parameters": 100,
    "layout": None,
    "signature": {"scheme": "affine32", "num_perm": 256, "seed": 1},
    "models": 3,
    "supports": 2,
    "signatures": 1,
    "version": 7,
    "created_at": "2026-01-02T03:04:05Z",
}

MODEL = {
    "space": "digits",
    "model": "org/a",
    "kind": "support",
    "support_size": 3,
    "digest": "sha256:00",
    "revision": 1,
    "version": 7,
    "tags": ["r1"],
    "attributes": {"epochs": 8},
    "source": None,
    "base_model": None,
    "verified": True,
    "created_at": "2026-01-02T03:04:05Z",
    "updated_at": "2026-01-02T03:04:05Z",
}

NEIGHBORS = {
    "model": "org/a",
    "method": "exact",
    "candidates": 2,
    "degraded": False,
    "items": [
        {
            "model": "org/b",
            "similarity": 0.5,
            "jaccard": 1 / 3,
            "estimate": "exact",
            "standard_error": 0.0,
            "shared_indices": 2,
        },
        {
            "model": "org/c",
            "similarity": 0.25,
            "jaccard": 1 / 7,
            "estimate": "signature",
            "standard_error": 0.04,
            "shared_indices": None,
        },
    ],
}

DONORS = {
    "target": "org/a",
    "method": "similarity",
    "items": [
        {
            "model": "org/b",
            "similarity": 0.5,
            "weight": 1,
            "estimate": "exact",
            "standard_error": 0.0,
        }
    ],
}

OVERLAP = {
    "a": "org/a",
    "b": "org/b",
    "shared_indices": 2,
    "similarity": 0.5,
    "jaccard": 1 / 3,
    "tensors": [
        {"name": "w", "size": 60, "a": 3, "b": 3, "shared_indices": 2, "similarity": 2 / 3},
        {"name": "b", "size": 40, "a": 0, "b": 0, "shared_indices": 0, "similarity": None},
    ],
}


@pytest.fixture
def space_json() -> dict[str, Any]:
    return dict(SPACE)


@pytest.fixture
def model_json() -> dict[str, Any]:
    return dict(MODEL)


@pytest.fixture
def neighbors_json() -> dict[str, Any]:
    return dict(NEIGHBORS)


@pytest.fixture
def donors_json() -> dict[str, Any]:
    return dict(DONORS)


@pytest.fixture
def overlap_json() -> dict[str, Any]:
    return dict(OVERLAP)
