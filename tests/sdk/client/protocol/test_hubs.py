"""The calls about sources, of both clients, against a real service."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

import modelkin
from modelkin import ApiError, AsyncClient, Client
from modelkin.errors import InvalidInput, InvalidParameter
from tests.support.hub_payloads import hf_headers, hf_payload
from tests.support.servers.server_process import Server

GIVEN: dict[str, Any] = {
    "secret": "between us",
    "importance": "delta",
    "base_model": "org/base",
    "exclude": ("*.running_*",),
    "filters": {"repos": ("org/*",), "tags": ["kin"]},
    "on_delete": "remove",
    "backfill_per_hour": 600,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service on SQLite."""
    running = Server(tmp_path_factory.mktemp("sources"), "--egress-allow=127.0.0.1").start()
    yield running
    assert 0 == running.stop()


def test_sources_come_and_go(server: Server) -> None:
    """What is given is set, what is changed changes alone, and what was delivered is listed."""
    with Client(server.url) as client:
        made = client.sources.create("huggingface", "kin", **GIVEN)
        assert ("delta", "org/base", "remove", False) == (
            made.importance,
            made.base_model,
            made.on_delete,
            made.has_token,
        )
        assert {"repos": ["org/*"], "tags": ["kin"]} == made.filters
        assert ("*.running_*",) == made.exclude
        assert (True, 600) == (made.fingerprints, made.backfill_per_hour)
        assert {"read": 0, "without": 0, "waiting": 0, "unread": 0} == made.fingerprint_counts
        assert made == client.sources.get(made) == client.sources.get(made.id)
        assert [made] == [source for source in client.sources.list() if source.id == made.id]
        url = "http://127.0.0.1:9"
        changed = client.sources.update(made, url=url, token="t", base_model=None, exclude=None)
        assert () == changed.exclude
        assert (url, True, None, "delta") == (
            changed.url,
            changed.has_token,
            changed.base_model,
            changed.importance,
        )
        answer = httpx.post(
            f"{server.url}{made.hook}", json=hf_payload("me/a"), headers=hf_headers("between us")
        )
        assert 202 == answer.status_code
        (delivery,) = client.sources.hub_events(made)
        assert ("me/a", "ignored") == (delivery.model, delivery.outcome)
        assert delivery.received_at == client.sources.get(made).last_delivery_at
        assert "poll" == client.sources.poll(made).kind
        client.sources.delete(made)
        with pytest.raises(ApiError) as error:
            client.sources.get(made)
        assert "source_not_found" == error.value.problem_code


def test_both_clients_do_the_same(server: Server) -> None:
    """Whatever one makes the other shows, changes and deletes."""

    async def awaited() -> None:
        async with AsyncClient(server.url) as client:
            made = await client.sources.create("mlflow", "kin", secret="s", poll_seconds=None)
            assert made == await client.sources.get(made)
            assert made.id in [source.id async for source in client.sources.list()]
            changed = await client.sources.update(made, secret="t", space="other")
            assert ("other", None) == (changed.space, changed.poll_seconds)
            assert [] == [delivery async for delivery in client.sources.hub_events(made)]
            with pytest.raises(ApiError, match="not polled"):
                await client.sources.poll(made)
            await client.sources.delete(made)

    asyncio.run(awaited())


def test_mistakes_are_seen_before_anything_is_sent() -> None:
    """An id, a name or a filter that can be none needs no service to be refused."""
    with Client("http://127.0.0.1:9") as client:
        for source in ("", "a/b", 7):
            with pytest.raises(InvalidParameter, match="source"):
                client.sources.get(source)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            client.sources.create("huggingface", "No Space", secret="s")
        with pytest.raises(InvalidParameter, match="list of strings"):
            client.sources.create("huggingface", "s", secret="s", filters={"repos": "org/*"})


def test_nothing_shows_a_secret(server: Server) -> None:
    """Neither a source nor the error of one that could not be made."""
    with Client(server.url) as client:
        with pytest.raises(modelkin.ApiError) as error:
            client.sources.create("github", "kin", secret="between us")  # type: ignore[arg-type] # refused
        assert "between us" not in str(error.value)
        made = client.sources.create("mlflow", "kin", secret="between us")
        assert "between us" not in repr(made)
