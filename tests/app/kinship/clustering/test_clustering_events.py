"""The event of a clustering: what its subscribers receive."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.webhooks.outbox import CLUSTERING_COMPLETED
from modelkin import Support
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend
from tests.support.http_space import random_support
from tests.support.servers.webhook_receiver import Receiver, receiving


@pytest.fixture
def app(tmp_path: Path, backend: Backend) -> Iterator[AppHarness]:
    """A service of its own."""
    with open_keyed_app(tmp_path, backend) as opened:
        yield opened


@pytest.fixture
def space(app: AppHarness) -> str:
    """The one space of the service."""
    return app.create_space("s")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of its own."""
    with receiving() as made:
        yield made


@pytest.fixture
def rng() -> np.random.Generator:
    """A random generator with a fixed seed."""
    return np.random.default_rng(7)


def fresh(rng: np.random.Generator) -> Support:
    return random_support(rng, 10_000, 400)


def test_a_clustering_is_an_event(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """With its number, its clusters, its URL, and the note on what is not known of chance."""
    for n in range(4):
        app.put_support(space, f"m{n}", fresh(rng))
    made = app.webhooks.subscribe(f"{receiver.url}/ok", CLUSTERING_COMPLETED, space=space)
    asked = {"algorithm": "agglomerative", "n_clusters": 2}
    assert 202 == app.http.post(f"/v1/spaces/{space}/clusterings", json=asked).status_code
    assert ["clustering", "events", "deliveries"] == app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    data = json.loads(delivery["payload"])["data"]
    stored = app.http.get(data["url"]).json()
    assert (stored["id"], stored["number"], 4, 2) == (
        data["clustering"],
        data["number"],
        data["models"],
        data["clusters"],
    )
    assert stored["note"] == data["note"]
    assert "no layout" in data["note"]


def test_an_event_says_that_models_are_at_chance(
    app: AppHarness, receiver: Receiver, rng: np.random.Generator
) -> None:
    """Its subscribers learn that the clusters are single models, and why."""
    body = {"name": "l", "num_parameters": 10_000, "layout": [{"name": "w", "shape": [10_000]}]}
    assert 201 == app.http.post("/v1/spaces", json=body).status_code
    for n in range(4):
        app.put_support("l", f"m{n}", fresh(rng))
    made = app.webhooks.subscribe(f"{receiver.url}/ok", CLUSTERING_COMPLETED, space="l")
    assert 202 == app.http.post("/v1/spaces/l/clusterings", json={}).status_code
    app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    data = json.loads(delivery["payload"])["data"]
    assert 4 == data["clusters"]
    assert "4 models are each alone" in data["note"]
