"""The event of a new version: what subscribers receive, and when nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend
from tests.support.models.learngene_files import gene, manifest_of
from tests.support.servers.webhook_receiver import Receiver, receiving

PATH = "/v1/spaces/s/clusters/all/learngene"


@pytest.fixture
def app(tmp_path: Path, backend: Backend) -> Iterator[AppHarness]:
    """A service of its own, with the space ``s``."""
    with open_keyed_app(tmp_path, backend) as opened:
        opened.create_space("s", 1000)
        yield opened


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of its own."""
    with receiving() as made:
        yield made


def test_a_new_version_is_an_event(app: AppHarness, receiver: Receiver) -> None:
    """Once, with what a subscriber needs to fetch it; the same content again is not one."""
    app.webhooks.subscribe(f"{receiver.url}/ok", "learngene.published", space="s")
    made = app.http.put(PATH, json=manifest_of(gene(), members=5)).json()
    app.http.put(PATH, json=manifest_of(gene(), members=5)).raise_for_status()
    app.worker.run_all()
    (request,) = receiver.at("/ok")
    event = json.loads(request.body)
    assert "learngene.published" == event["type"]
    for name in ("space", "cluster", "version", "clustering", "digest", "bytes", "members"):
        assert made[name] == event["data"][name]
    assert made == app.http.get(event["data"]["url"]).json()


def test_other_subscribers_get_none(app: AppHarness, receiver: Receiver) -> None:
    """Of other spaces, and of other events."""
    app.webhooks.subscribe(f"{receiver.url}/ok", "learngene.published", space="other")
    app.webhooks.subscribe(f"{receiver.url}/ok", "clustering.completed")
    app.http.put(PATH, json=manifest_of(gene())).raise_for_status()
    refused = app.http.put(PATH, json=manifest_of(gene(1)), headers={"If-Match": '"0"'})
    assert 412 == refused.status_code
    app.worker.run_all()
    assert [] == receiver.at("/ok")
