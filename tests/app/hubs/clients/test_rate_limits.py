"""Limits of requests: a hub is not asked before the time that it names, by nobody here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from app.infra.egress.waits import asked_wait
from tests.app.hubs.conftest import GOOD
from tests.support.app.harness import AppHarness
from tests.support.servers.fake_huggingface import Handler, Hub, answering


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"RateLimit": '"resolvers";r=0;t=47'}, 47.0),
        ({"RateLimit": '"api";r=0;t=55', "Retry-After": "7"}, 55.0),
        ({"RateLimit": '"api";r=0;t=5', "Retry-After": "70"}, 70.0),
        ({"RateLimit": '"a,b;t=9";r=3;t=900, "pages" ; r=0 ; t=12'}, 12.0),
        ({"RateLimit": '"day";r=0;t=999999999'}, 86400.0),
        ({"RateLimit": "limit=100, remaining=0, reset=50"}, 50.0),
        ({"RateLimit-Limit": "100", "RateLimit-Remaining": "0", "RateLimit-Reset": "41"}, 41.0),
        ({"ratelimit-reset": "8"}, 8.0),
        ({"RateLimit": "limit=100, remaining=7, reset=50"}, None),
        ({"RateLimit-Remaining": "3", "RateLimit-Reset": "41"}, None),
        ({"RateLimit-Reset": "tomorrow"}, None),
        ({"RateLimit-Reset": "179000000"}, None),
        ({"RateLimit": '"api";r=9;t=30'}, None),
        ({"RateLimit": "nonsense;;t=x"}, None),
        ({"RateLimit": '"' + "," * 10_000}, None),
        ({}, None),
    ],
)
def test_what_an_answer_asks_for(headers: dict[str, str], wait: float | None) -> None:
    """The longest wait of ``Retry-After`` and of the used-up policies of ``RateLimit``, as its
    drafts have it.
    """
    assert wait == asked_wait(httpx.Response(429, headers=headers))


def test_another_status_is_no_limit() -> None:
    """A window of requests says nothing of an outage."""
    assert asked_wait(httpx.Response(503, headers={"RateLimit": '"api";r=0;t=47'})) is None


@pytest.mark.slow
@pytest.mark.parametrize("where", ["on_hub", "on_cdn"])
def test_no_request_before_the_time(hub: Hub, app: AppHarness, where: str) -> None:
    """Neither the job itself, when an event makes it due, nor that of another model asks the hub
    before the time of its ``RateLimit``; a file that was begun is not continued either.
    """
    for name in ("org/a", "org/b"):
        hub.push(name, {"model.safetensors": GOOD})
    source = app.hubs.follow(hub.url)
    asked: list[str] = []

    def limiting(request: Handler) -> bool:
        asked.append(request.path)
        return answering(429, RateLimit='"resolvers";r=0;t=47')(request)

    setattr(hub, where, limiting)
    job = app.hubs.sync_model(source, "org/a")
    assert ("queued", "hub_unavailable") == (job.state, (job.error or {})["code"])
    assert 45 < _wait(job) <= 47
    assert 1 == len(asked)
    setattr(hub, where, lambda _: False)
    hub.hub_tokens.clear()
    again = [app.worker.execute(job), app.hubs.sync_model(source, "org/b")]
    assert ["queued", "queued"] == [each.state for each in again]
    assert all(0 < _wait(each) <= 47 for each in again)
    assert set() == hub.hub_tokens
    other = app.hubs.follow(hub.url, token="hf_of_a_user", space="other")
    assert "succeeded" == app.hubs.sync_model(other, "org/b").state


def _wait(job: Any) -> float:
    assert job.not_before is not None
    seconds: float = (job.not_before - datetime.now(UTC)).total_seconds()
    return seconds
