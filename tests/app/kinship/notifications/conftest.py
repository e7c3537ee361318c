"""A service that sends events and a receiver of them, and the supports that cause them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from modelkin import Support
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend
from tests.support.http_space import random_support
from tests.support.servers.webhook_receiver import Receiver, receiving

M = 10_000


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """The receiver of a file."""
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """The service of a file, on each database."""
    with open_keyed_app(tmp_path_factory.mktemp("app"), backend) as made:
        yield made


@pytest.fixture
def rng() -> np.random.Generator:
    """A random generator with a fixed seed."""
    return np.random.default_rng(7)


@pytest.fixture
def space(app: AppHarness, request: pytest.FixtureRequest) -> Iterator[str]:
    """A space of the test's own; its subscriptions are deleted afterwards."""
    yield app.create_space(request.node.name.split("[")[0].replace("_", "-")[:90])
    for subscription in app.http.get("/v1/subscriptions").json()["items"]:
        assert 204 == app.http.delete(f"/v1/subscriptions/{subscription['id']}").status_code


def fresh(rng: np.random.Generator) -> Support:
    return random_support(rng, M, 400)


def a_batch(app: AppHarness, space: str, supports: dict[str, Support]) -> None:
    """Store them all in one request."""
    lines = [
        json.dumps({"model": name, "support": b64encode(support.to_bytes()).decode()})
        for name, support in supports.items()
    ]
    headers = {"Content-Type": "application/jsonl"}
    path = f"/v1/spaces/{space}/batch"
    assert 200 == app.http.post(path, content="\n".join(lines), headers=headers).status_code


def models_of(app: AppHarness, made: dict[str, Any]) -> list[str]:
    """The models that a subscription was notified about."""
    return sorted(json.loads(d["payload"])["data"]["model"] for d in app.webhooks.deliveries(made))
