"""A closed client: every call raises the SDK's own error, and none reaches the network."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import AsyncClient, Client, ClientClosed, Delivery, Subspace, Support
from modelkin.checkpoints import Weights
from tests.sdk.client.operations import operations
from tests.support.models.made_fingerprints import made_fingerprint

SUPPORT = Support.from_indices([2, 5, 7], 100)
PLAIN = operations(Client("http://kin.test"))
NAMES = sorted(PLAIN.keys() - {"close"})
VALUES: dict[str, Any] = {
    "support": SUPPORT,
    "query": SUPPORT,
    "newcomer": SUPPORT,
    "signature": SUPPORT.signature(),
    "sketch": SUPPORT.sketch(),
    "fingerprint": made_fingerprint(1),
    "subspace": Subspace.of_basis(np.eye(3)[:, :1]),
    "importance": np.ones(100, np.float32),
    "items": [],
    "cluster": "all",
    "models": ["a", "b"],
    "events": ["model.*"],
    "weights": Weights("sha256:0", {}, 1, 1, {}),
    "key": "mk_QwAU1Z3X",
    "kind": "huggingface",
    "url": "http://receiver.test",
    "delivery": Delivery(
        id="d",
        subscription="s",
        type="ping",
        event="e",
        state="pending",
        attempts=0,
        log=(),
        payload="{}",
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
    ),
}
"""Of arguments that are not names; any other is ``"x"``."""


def arguments(function: Any) -> dict[str, Any]:
    """What a call needs at least, by name."""
    found = {
        name: VALUES.get(name, "x")
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    }
    if "layout" in inspect.signature(function).parameters and "name" in found:
        found["num_parameters"] = 100
    return found | ({"attributes": {}} if function.__qualname__.endswith("Models.update") else {})


@pytest.mark.parametrize("name", NAMES)
def test_every_call_of_a_closed_client_is_refused(name: str, wire: Any) -> None:
    """Calls, listings and bulk uploads alike, with the address of the service."""
    client = wire.client(httpx.Response(500))
    client.close()
    called: Any = client
    for part in name.split("."):
        called = getattr(called, part)

    def call() -> None:
        answer = called(**arguments(PLAIN[name]))
        if isinstance(answer, Iterable):
            next(iter(answer))

    with pytest.raises(ClientClosed, match=r"http://kin.test is closed: make another one"):
        call()
    assert wire.requests == []


def test_a_closed_client_opens_no_block(wire: Any) -> None:
    """``with`` on a closed client is refused; closing twice is not."""
    client = wire.client(httpx.Response(200))
    assert "closed" not in repr(client)
    client.close()
    client.close()
    assert repr(client).endswith("Client of http://kin.test, closed>")
    with pytest.raises(ClientClosed), client:
        pytest.fail("the block must not run")


def test_calls_in_flight_when_a_client_closes_say_so() -> None:
    """The broken connection of a call is not taken for a service that is away, nor retried."""

    async def scenario() -> None:
        begun, attempts = asyncio.Event(), 0

        async def handle(request: httpx.Request) -> httpx.Response:
            nonlocal attempts
            attempts += 1
            begun.set()
            await asyncio.sleep(0.05)
            raise httpx.ReadError("closed", request=request)

        client = AsyncClient("http://kin.test", transport=httpx.MockTransport(handle))
        call = asyncio.create_task(client.spaces.get("digits"))
        await begun.wait()
        await client.close()
        with pytest.raises(ClientClosed):
            await call
        assert attempts == 1

    asyncio.run(scenario())
