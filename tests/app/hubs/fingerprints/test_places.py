"""The place of a hub's fingerprint among those of the tenant: clients' ones, and too many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.fingerprints.service import FingerprintService
from app.tenancy.quotas.service import QuotaService
from tests.app.hubs.fingerprints.conftest import files, made_of, model, record, result, stored
from tests.support.app.harness import AppHarness, open_hub_app
from tests.support.servers.fake_huggingface import Hub


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppHarness]:
    """A service without a model."""
    with open_hub_app(tmp_path) as app:
        yield app


def put_by_client(app: AppHarness, name: str, folder: Path, seed: int) -> None:
    """Store what a client would send of a model."""
    service = app.services[FingerprintService]
    prepared = service.prepare(made_of(folder, model(seed)))
    with app.database.writing() as session:
        service.put(session, app.tenant, name, prepared, stated_by="client")


def test_what_a_client_has_sent_goes_with_no_model_of_a_hub(
    hub: Hub, app: AppHarness, tmp_path: Path
) -> None:
    """A sync replaces it; a model that the hub deletes, or that can have none, takes none along."""
    put_by_client(app, "org/a", tmp_path, 1)
    hub.push("org/a", files(model(2)))
    source = app.hubs.follow(hub.url, on_delete="remove", token="hf_of_a_user")
    result(app, source)
    assert made_of(tmp_path, model(2)) == stored(app, "org/a")
    with app.database.writing() as session:
        app.services[FingerprintService].delete(session, app.tenant, "org/a")
    put_by_client(app, "org/a", tmp_path, 3)
    del hub.repos["org/a"]
    assert False is result(app, source)["fingerprint_removed"]
    assert made_of(tmp_path, model(3)) == stored(app, "org/a")


def test_a_tenant_without_room_is_told_so_and_asked_again(hub: Hub, app: AppHarness) -> None:
    """The support is stored all the same; once there is room, a sync makes the fingerprint."""
    quotas = app.services[QuotaService]
    with app.database.writing() as session:
        quotas.set(session, app.tenant.id, {"fingerprints": 1})
    for seed, name in enumerate(("org/a", "org/b"), 1):
        hub.push(name, files(model(seed)))
    source = app.hubs.follow(hub.url)
    result(app, source)
    answer = result(app, source, "org/b")
    assert ("stored", None) == (answer["outcome"], record(app, "org/b"))
    assert "1 fingerprints and may have 1" in answer["fingerprint"]["reason"]
    shown = app.hubs.show({"id": source.id})
    assert {"read": 1, "without": 0, "waiting": 1, "unread": 0} == shown["fingerprint_counts"]
    with app.database.writing() as session:
        quotas.set(session, app.tenant.id, {"fingerprints": 2})
    assert "created" == result(app, source, "org/b")["fingerprint"]["status"]
    assert None is not record(app, "org/b")
