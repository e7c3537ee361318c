"""From a push to a hub to the subscriber's webhook, automatically, in one service."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
import modelkin.webhooks
from modelkin.types import EventType
from tests.sdk.core.fingerprints.planted import DERIVED, model
from tests.sdk.core.fingerprints.relatives import changed
from tests.support.models.checkpoints import Tensors, random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub
from tests.support.servers.server_process import Server
from tests.support.servers.webhook_receiver import Receiver, receiving

pytestmark = [pytest.mark.slow, pytest.mark.long]

EVENTS: list[EventType] = [
    "support.stored",
    "neighbors.changed",
    "clustering.completed",
    "lineage.mismatch",
]
OLD, NEW = "2024-01-01T00:00:00.000Z", "2025-01-01T00:00:00.000Z"
Heard = dict[str, list[dict[str, Any]]]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[modelkin.Client]:
    """Of a service that carries out its jobs and may talk to loopback."""
    server = Server(tmp_path, "--egress-allow=127.0.0.1").start()
    with modelkin.Client(server.url) as client:
        yield client
    assert 0 == server.stop(), server.log.read_text()
    assert "Traceback" not in server.log.read_text()


def test_whoever_subscribed_hears_of_a_push(hub: Hub, client: modelkin.Client) -> None:
    """Two families and some strangers are pushed to a hub, with one webhook each: the nearest are
    those of the family, a clustering by the space's policy separates the families, and the
    subscriber has received supports, neighbours, clusters and an impossible base.
    """
    with receiving() as receiver:
        subscription = client.webhooks.create(
            f"{receiver.url}/ok", EVENTS, space="pushed", threshold=0.3
        )
        source = client.sources.create(
            "huggingface", "pushed", secret="s", url=hub.url, importance="weight", poll_seconds=None
        )
        first, second = random_tensors(1), random_tensors(2)
        pushed: dict[str, tuple[Tensors, dict[str, str]]] = {
            "org/first": (first, {}),
            "org/second": (second, {}),
            "org/first-tuned": (_drifted(first, 3), {"base_model": "org/first"}),
            "org/second-tuned": (_drifted(second, 4), {"base_model": "org/second"}),
        }
        for number in range(6):
            pushed[f"org/stranger{number}"] = random_tensors(10 + number), {}
        # Last, and after all others: a verdict on a declared base needs enough other models.
        pushed["org/first-lies"] = _drifted(first, 5), {"base_model": "org/second"}
        for stored, (name, (tensors, card)) in enumerate(pushed.items()):
            if name == "org/first-lies":
                _wait(partial(_has_stored, receiver, subscription, stored))
            sha = hub.push(name, {"model.safetensors": safetensors(tensors)}, card=card)
            _deliver(client, source.hook, name, sha)
        _wait(partial(_has_stored, receiver, subscription, 11))
        client.clusterings.policy.set(
            "pushed", "agglomerative", after_changes=1, debounce_seconds=0
        )

        families = [name for name in pushed if "stranger" not in name]
        nearest = {name: client.neighbors("pushed", name, k=1)[0].model for name in families}
        assert all(_family(a) == _family(b) for a, b in nearest.items())
        for kind in ("clustering.completed", "lineage.mismatch"):
            _wait(partial(_has_heard, receiver, subscription, kind))
        heard = _heard(receiver, subscription)
        assert set(pushed) == {event["data"]["model"] for event in heard["support.stored"]}
        made = heard["clustering.completed"][0]["data"]["clustering"]
        labels = client.clusterings.get("pushed", made).labels
        together = {(a, b) for a in families for b in families if labels[a] == labels[b]}
        assert {(a, b) for a in families for b in families if _family(a) == _family(b)} == together
        assert {"org/first-lies"} == {e["data"]["model"] for e in heard["lineage.mismatch"]}
        assert "org/first" == heard["lineage.mismatch"][0]["data"]["likely_base"]
        changes = [event["data"] for event in heard["neighbors.changed"]]
        near = {
            (change["model"], other["model"]) for change in changes for other in change["changes"]
        }
        assert ("org/first-tuned", "org/first") in near
        assert all(_family(a) == _family(b) for a, b in near)


def test_a_subscriber_hears_of_a_base_of_another_layout(hub: Hub, client: modelkin.Client) -> None:
    """A deeper fine-tune declares a stranger with fused tensors. Its lines are those of another
    model, and the subscriber hears of it, and of no other.
    """
    base = model(0)
    pushed: dict[str, tuple[Tensors, str, dict[str, str]]] = {
        "org/base": (base, OLD, {}),
        "org/stranger": (DERIVED["fused"](model(1)), OLD, {}),
        "org/grown": (DERIVED["more tokens"](base), NEW, {"base_model": "org/base"}),
        "org/lies": (DERIVED["up-scaled"](changed(base, 3)), NEW, {"base_model": "org/stranger"}),
    }
    with receiving() as receiver:
        subscription = client.webhooks.create(f"{receiver.url}/ok", ["lineage.mismatch"])
        source = client.sources.create(
            "huggingface", "lines", secret="s", url=hub.url, poll_seconds=None
        )
        for name, (tensors, created, card) in pushed.items():
            files = {"model.safetensors": safetensors(tensors)}
            _deliver(client, source.hook, name, hub.push(name, files, card=card, created=created))
        _wait(partial(_has_heard, receiver, subscription, "lineage.mismatch"))
        found = {name: client.fingerprint_lineage(name) for name in pushed}
        heard = [event["data"] for event in _heard(receiver, subscription)["lineage.mismatch"]]
    assert ["mismatch", "consistent"] == [found[f"org/{n}"].verdict for n in ("lies", "grown")]
    assert {("org/lies", "org/stranger", "org/base", "lines")} == {
        (data["model"], data["declared_base"], data["likely_base"], data["reason"])
        for data in heard
    }
    assert all("most of its lines are those of 'org/base'" in data["summary"] for data in heard)


def _family(name: str) -> str:
    return name.split("-")[0]


def _drifted(tensors: Tensors, seed: int) -> Tensors:
    """The weights of a model that was trained on a little."""
    noise = random_tensors(seed)
    return {name: (w + np.float32(0.1) * noise[name]).astype("f4") for name, w in tensors.items()}


def _deliver(client: modelkin.Client, hook: str, name: str, sha: str) -> None:
    payload = {
        "event": {"action": "create", "scope": "repo"},
        "repo": {"type": "model", "name": name, "id": name, "headSha": sha, "private": False},
    }
    headers = {"X-Webhook-Secret": "s", "Webhook-Id": f"delivery-of-{name}"}
    answer = httpx.post(f"{client.url}{hook}", json=payload, headers=headers, trust_env=False)
    assert 202 == answer.status_code, answer.text


def _heard(receiver: Receiver, subscription: modelkin.Subscription) -> Heard:
    """All events that came, verified, each once, by their type."""
    heard: Heard = defaultdict(list)
    assert subscription.secret is not None
    for request in {one.headers["webhook-id"]: one for one in receiver.at("/ok")}.values():
        event = modelkin.webhooks.verify(request.body, request.headers, subscription.secret)
        heard[event["type"]].append(event)
    return heard


def _has_stored(receiver: Receiver, subscription: modelkin.Subscription, count: int) -> bool:
    return len(_heard(receiver, subscription)["support.stored"]) == count


def _has_heard(receiver: Receiver, subscription: modelkin.Subscription, kind: str) -> bool:
    return bool(_heard(receiver, subscription)[kind])


def _wait(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)
