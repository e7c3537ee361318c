"""Anatomies and relatives while the index in Redis is away: right, and marked as degraded."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.anatomy.records import Summary
from app.anatomy.repositories import anatomies
from tests.app.anatomy.families import BODY, Family, derived, stranger
from tests.support.app.harness import open_app
from tests.support.servers.redis_server import RedisProcess, redis_server
from tests.support.servers.waiting import wait_for

pytestmark = pytest.mark.redis


@pytest.fixture
def redis() -> Iterator[RedisProcess]:
    """A Redis that a test may kill."""
    with redis_server() as process:
        yield process


@pytest.fixture
def shared(tmp_path: Path, redis: RedisProcess) -> Iterator[Family]:
    """A service whose index is in Redis, with a base and a child."""
    with open_app(tmp_path, redis_url=redis.url, fingerprint_index="redis") as app:
        family = Family(app)
        family.put("base", stranger(0), stated_by="hub")
        family.put("child", derived("fused"))
        wait_for(lambda: not family.relatives("child")["degraded"])
        yield family


def ask(family: Family) -> list[Any]:
    """Anatomies and relatives of a stored model, and of one that is not."""
    http, given = family.app.http, derived("fused").to_bytes()
    return [
        http.get("/v1/fingerprints/child/anatomy"),
        http.get("/v1/fingerprints/child/relatives"),
        http.post("/v1/anatomy", content=given, headers=BODY),
        http.post("/v1/relatives", content=given, headers=BODY),
    ]


def counted(family: Family, operation: str) -> float:
    """The degraded answers that the metrics have."""
    name = f'modelkin_degraded_answers_total{{operation="{operation}"}} '
    lines = family.app.http.get("/metrics").text.splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_answers_without_redis_are_marked(shared: Family, redis: RedisProcess) -> None:
    """The disk knows the same models. Such answers have no ETag, and metrics count them."""
    before, so_far = ask(shared), counted(shared, "relatives")
    assert [False] * 4 == [answer.json()["degraded"] for answer in before]
    redis.signal(signal.SIGKILL)
    after = ask(shared)
    assert [True] * 4 == [answer.json()["degraded"] for answer in after]
    for one, other in zip(before, after, strict=True):
        assert one.json() | {"degraded": True} == other.json()
    assert [True, True] == ["etag" in answer.headers for answer in before[:2]]
    assert [False, False] == ["etag" in answer.headers for answer in after[:2]]
    assert (2, so_far + 2) == (counted(shared, "anatomy"), counted(shared, "relatives"))


def test_a_stored_anatomy_outlives_an_outage(shared: Family, redis: RedisProcess) -> None:
    """What was made before stays until the index is back; a first one is made, and made again."""
    shared.work()
    before = summaries(shared)
    redis.signal(signal.SIGKILL)
    newest = shared.put("copy", derived("renamed"))
    shared.work()
    after = summaries(shared)
    assert {newest.id} == after.keys() - before.keys()
    assert after[newest.id].parents
    assert after[newest.id].is_due
    assert any(after[each].is_due for each in before)
    assert [each.made_at for each in before.values()] == [after[each].made_at for each in before]


def summaries(family: Family) -> dict[int, Summary]:
    with family.app.database.reading() as session:
        return anatomies.find_summaries(session, family.app.tenant.id, range(1, 10))
