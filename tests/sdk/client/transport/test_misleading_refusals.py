"""Refusals that name what is at fault: a proxy on the way, and an attribute by its key."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from modelkin import Client, Support
from modelkin.errors import ConnectionFailed, InvalidParameter
from tests.support.blocking_client import Connect
from tests.support.servers.server_process import Server

SUPPORT = Support.from_indices(range(10), 1000)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address on which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("variable", ["{}_PROXY", "ALL_PROXY"])
def test_a_dead_proxy_is_named(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, nobody: str, scheme: str, variable: str
) -> None:
    """Before a service elsewhere the proxy is told, without its password, and how to go without."""
    monkeypatch.setenv(variable.format(scheme.upper()), f"http://me:secret@{nobody}")
    dial = connect(f"{scheme}://kin.test", retries=0)
    with dial as client, pytest.raises(ConnectionFailed) as caught:
        client.spaces.get("digits")
    message = str(caught.value)
    assert (
        f"the proxy http://{nobody} on the way to {scheme}://kin.test does not answer "
        f"(connection refused): correct {scheme.upper()}_PROXY or ALL_PROXY, or name the "
        f"service's host in NO_PROXY"
    ) == message


def test_a_dead_service_on_this_machine_is_the_service(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, nobody: str
) -> None:
    """No proxy stands before it, and none is told."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    dial = connect(f"http://{nobody}", retries=0)
    with dial as client, pytest.raises(ConnectionFailed, match="no modelkin service answers"):
        client.spaces.get("digits")


UNSENDABLE: dict[str, tuple[dict[str, Any], str]] = {
    "an array": ({"a": 1, "means": np.ones(3)}, r"attributes\.means cannot be sent as JSON"),
    "a number": ({"run": {"loss": np.float32(1)}}, r"attributes\.run\.loss cannot be sent as JSON"),
    "NaN": ({"losses": [0.5, float("nan")]}, r"attributes\.losses\[1\] cannot be sent as JSON"),
    "an object": ({"made": object()}, r"attributes\.made cannot be sent as JSON"),
}


@pytest.mark.parametrize("kind", UNSENDABLE)
def test_attributes_without_a_json_form_are_named_by_their_key(
    sqlite_server: Server, connect: Connect, kind: str
) -> None:
    """A new model, one that exists with the same key, and its update say which key."""
    attributes, message = UNSENDABLE[kind]
    space = f"named-{uuid.uuid4().hex[:8]}"
    with Client(sqlite_server.url) as client:
        client.ensure_space(space, num_parameters=1000)
        held = {key: [1.0, 1.0, 1.0] for key in attributes}
        client.put_support(space, "old", SUPPORT, attributes=held)
    with connect(sqlite_server.url) as client:
        for name in ("new", "old"):
            with pytest.raises(InvalidParameter, match=message):
                client.put_support(space, name, SUPPORT, attributes=attributes)
        with pytest.raises(InvalidParameter, match=message):
            client.models.update(space, "old", attributes=attributes)
