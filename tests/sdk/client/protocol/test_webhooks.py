"""Subscriptions through either client, against a real service and a real receiver."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from modelkin import ApiError, Support, webhooks
from modelkin.errors import InvalidName, InvalidParameter
from tests.support.blocking_client import Connect
from tests.support.servers.server_process import Server
from tests.support.servers.webhook_receiver import Receiver, receiving


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """The receiver of this file."""
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service of this file."""
    folder = tmp_path_factory.mktemp("service")
    running = Server(folder, "--egress-allow=127.0.0.1").start()
    yield running
    assert 0 == running.stop(), running.log.read_text()


@pytest.fixture
def client(server: Server, connect: Connect) -> Iterator[Any]:
    """Either client, of the service."""
    with connect(server.url) as client:
        yield client


def test_a_subscription_lives_and_dies(client: Any, receiver: Receiver) -> None:
    """It is made, listed, changed, and deleted; its secret is answered once and never shown."""
    made = client.webhooks.create(
        f"{receiver.url}/ok", ["neighbors.changed"], threshold=0.25, tag="red", description="d"
    )
    assert made.secret is not None
    assert made.secret not in repr(made)
    assert (("neighbors.changed",), 0.25, "red", None) == (
        made.events,
        made.threshold,
        made.tag,
        made.space,
    )
    assert (made.id, None) == (client.webhooks.get(made).id, client.webhooks.get(made).secret)
    assert made.id in [each.id for each in client.webhooks.list()]
    changed = client.webhooks.update(made, tag=None, enabled=False)
    assert (None, False, 0.25) == (changed.tag, changed.enabled, changed.threshold)
    client.webhooks.delete(made.id)
    with pytest.raises(ApiError, match="subscription_not_found"):
        client.webhooks.get(made)


@pytest.mark.slow
def test_what_is_sent_is_seen(client: Any, receiver: Receiver) -> None:
    """A ping arrives, is verified with either secret of a rotation, and can be replayed."""
    made = client.webhooks.create(f"{receiver.url}/ok/{time.time_ns()}", ["support.stored"])
    rotated = client.webhooks.rotate_secret(made, overlap_seconds=600)
    assert rotated.previous_secret_until is not None
    delivery = client.webhooks.ping(made)
    delivery = ended(client, delivery)
    assert ("succeeded", [204], "ping") == (
        delivery.state,
        [attempt.status for attempt in delivery.log],
        delivery.type,
    )
    path = made.url.removeprefix(receiver.url)
    [request] = receiver.at(path)
    for secret in (made.secret, rotated.secret):
        event = webhooks.verify(request.body, request.headers, secret)
        assert json.loads(delivery.payload) == event
    assert "pending" == client.webhooks.replay(delivery).state
    assert 2 == len(ended(client, delivery).log)
    sent = client.webhooks.deliveries(made, state="succeeded")
    assert [delivery.id] == [each.id for each in sent]
    client.webhooks.delete(made)


def test_the_whole_way(client: Any, server: Server, receiver: Receiver) -> None:
    """A receiver gets the event of a PUT moments later; the log holds no secrets."""
    path = f"/ok/{time.time_ns()}"
    made = client.webhooks.create(f"{receiver.url}{path}", ["support.stored"])
    space = f"s{time.time_ns()}"
    client.ensure_space(space, num_parameters=100)
    support = Support.from_indices([1, 2, 3], 100)
    client.put_support(space, "a", support)
    until = time.monotonic() + 20
    while not receiver.at(path) and time.monotonic() < until:
        time.sleep(0.02)
    [request] = receiver.at(path)
    data = webhooks.verify(request.body, request.headers, made.secret)["data"]
    assert (space, "a", support.digest) == (data["space"], data["model"], data["digest"])
    log = server.log.read_text()
    assert "Traceback" not in log
    assert receiver.url not in log
    assert made.secret not in log
    client.webhooks.delete(made)


def ended(client: Any, delivery: Any) -> Any:
    """The delivery, once nothing more is tried."""
    until = time.monotonic() + 20
    now = client.webhooks.delivery(delivery)
    while now.state == "pending" and time.monotonic() < until:
        time.sleep(0.02)
        now = client.webhooks.delivery(delivery)
    return now


def test_mistakes_are_told_before_anything_is_sent(client: Any) -> None:
    """What no service would take is an error here."""
    mistakes: list[Callable[[], object]] = [
        lambda: client.webhooks.create("http://127.0.0.1/", "support.stored"),
        lambda: client.webhooks.get("a/b"),
        lambda: client.webhooks.delivery("not one"),
    ]
    for mistake in mistakes:
        with pytest.raises(InvalidParameter):
            mistake()
    with pytest.raises(InvalidName):
        client.webhooks.create("http://127.0.0.1/", ["support.stored"], space="No Space")
    with pytest.raises(ApiError, match=r"10\.0\.0\.1 is not a public address"):
        client.webhooks.create("http://10.0.0.1/", ["support.stored"])
