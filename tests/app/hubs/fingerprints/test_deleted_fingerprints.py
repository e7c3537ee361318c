"""What the service read from a hub comes back where a client deletes it, whatever is put there."""

from __future__ import annotations

from pathlib import Path

from app.fingerprints.service import FingerprintService
from app.hubs.backfill import FingerprintBackfill
from app.hubs.records import SourceRecord
from modelkin.wire import FINGERPRINT
from tests.app.hubs.fingerprints.conftest import files, made_of, model, record, result
from tests.support.app.harness import AppHarness, open_app, open_hub_app
from tests.support.backends import Backend
from tests.support.servers.fake_huggingface import Hub

NAME = "org/a"
URL = f"/v1/fingerprints/{NAME}"


def put(app: AppHarness, folder: Path, url: str = URL) -> int:
    """Put the fingerprint of another model; return the status."""
    other = made_of(folder, model(7)).to_bytes()
    return app.http.put(url, content=other, headers={"Content-Type": FINGERPRINT}).status_code


def waiting(app: AppHarness, source: SourceRecord) -> int:
    """How many models of a source wait to be read."""
    [listed] = app.http.get("/v1/sources").json()["items"]
    assert source.id == listed["id"]
    return int(listed["fingerprint_counts"]["waiting"])


def test_a_backfill_replaces_what_a_client_puts_in_its_place(
    hub: Hub, backend: Backend, tmp_path: Path
) -> None:
    """Without an event of the hub, a poll or a sync that somebody asks for."""
    hub.push(NAME, files(model(1)))
    with open_app(tmp_path, backend) as app:
        source = app.hubs.follow(hub.url, backfill_per_hour=None)
        result(app, source)
        read = record(app, NAME)
        assert read is not None
        assert 409 == put(app, tmp_path)
        assert 204 == app.http.delete(URL).status_code
        assert 201 == put(app, tmp_path)
        forged = record(app, NAME)
        assert forged is not None
        assert ("client", False) == (forged.stated_by, read.digest == forged.digest)
        assert 1 == app.services[FingerprintBackfill].due()
        app.worker.run_all()
        found = record(app, NAME)
        assert found is not None
        assert ("hub", read.digest) == (found.stated_by, found.digest)
        assert (source.id, read.hub_revision) == (found.source_id, found.hub_revision)
        assert 0 == waiting(app, source)
        assert 409 == put(app, tmp_path)


def test_other_models_are_not_read_again(hub: Hub, tmp_path: Path) -> None:
    """Nor is any where a client deletes what a client has stated, or the service deletes."""
    with open_hub_app(tmp_path) as app:
        source = app.hubs.follow(hub.url, backfill_per_hour=None)
        for seed, name in enumerate((NAME, "org/a/b", "org")):
            hub.push(name, files(model(seed)))
            result(app, source, name)
        assert 201 == put(app, tmp_path, f"{URL}/c")
        assert 204 == app.http.delete(f"{URL}/c").status_code
        with app.database.writing() as session:
            app.services[FingerprintService].delete(session, app.tenant, "org", by="hub")
        assert 0 == waiting(app, source)
        assert 204 == app.http.delete(URL).status_code
        assert 1 == waiting(app, source)
