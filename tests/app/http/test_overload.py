"""More requests at once than there are threads and connections: they wait, and all are answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import httpx
import pytest

from app.bootstrap import open_services
from app.main import create_app
from app.models.spaces.service import SpaceService
from modelkin import Support
from tests.support.app.harness import settings_of
from tests.support.backends import Backend
from tests.support.http_space import Space

CROWD = 200


async def ask_at_once(url: str, path: str) -> Counter[int]:
    """The status codes of many requests that are sent together."""
    limits = httpx.Limits(max_connections=CROWD)
    async with httpx.AsyncClient(
        base_url=url, limits=limits, timeout=60, trust_env=False
    ) as client:
        answers = await asyncio.gather(*(client.get(path) for _ in range(CROWD)))
    return Counter(answer.status_code for answer in answers)


@pytest.mark.slow
def test_a_crowd_is_answered(space: Space) -> None:
    """No request waits for a connection held by one that waits for a thread: none is a 503."""
    space.put("a", Support.from_indices(range(0, space.m, 9), space.m))
    space.put("b", Support.from_indices(range(0, space.m, 7), space.m))
    path = f"/v1/spaces/{space.name}/neighbors?model=a"
    assert {200: CROWD} == asyncio.run(ask_at_once(str(space.http.base_url), path))


@pytest.mark.slow
def test_a_bug_is_counted_and_can_be_found(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error is a 500 with a request id, and the metrics count it."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    async def ask(app: object) -> tuple[httpx.Response, str]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/v1/spaces"), (await client.get("/metrics")).text

    monkeypatch.setattr(SpaceService, "list", fail)
    with open_services(settings_of(tmp_path, backend)) as services:
        answer, metrics = asyncio.run(ask(create_app(services)))
    assert answer.json()["request_id"] == answer.headers["X-Request-Id"]
    assert 'count{method="GET",route="/v1/spaces",status="500"} 1.0' in metrics
