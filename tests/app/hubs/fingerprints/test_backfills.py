"""Backfills: stored models without a fingerprint are read again, the last changed first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from app.hubs.backfill import BACKFILL_TICK, FingerprintBackfill
from app.hubs.records import FingerprintCounts, SourceRecord
from app.hubs.repositories import fingerprint_states
from app.hubs.service import SourceService
from app.hubs.sync_requests import BACKFILL, SyncScheduler
from app.infra.db.tables.hubs import SourceModelRow
from app.infra.db.tables.jobs import JobRow
from tests.app.hubs.fingerprints.conftest import FILE, files, model, stored
from tests.support.app.harness import AppHarness, open_app, open_hub_app
from tests.support.backends import Backend
from tests.support.servers.fake_huggingface import Hub, answering

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ORDER = ("org/c", "org/a", "org/e", "org/b", "org/d")
"""Names, the last changed first."""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppHarness]:
    """A service without a model."""
    with open_hub_app(tmp_path) as app:
        yield app


def followed(hub: Hub, app: AppHarness, **settings: Any) -> SourceRecord:
    """A source whose models are stored without fingerprints, which are wanted since."""
    for number, name in enumerate(ORDER):
        changed = NOW - timedelta(days=number)
        hub.push(name, files(model(number)), changed=changed.isoformat())
    source = app.hubs.follow(hub.url, fingerprints=False, **settings)
    for name in sorted(ORDER):
        assert "succeeded" == app.hubs.sync_model(source, name).state
    wanted = app.http.patch(f"/v1/sources/{source.id}", json={"fingerprints": True})
    assert {"read": 0, "without": 0, "waiting": 5, "unread": 0} == wanted.json()[
        "fingerprint_counts"
    ]
    return app.hubs.source(source.id)


def backfill_of(app: AppHarness, now: list[datetime]) -> FingerprintBackfill:
    """The service that enqueues the syncs, by a clock of the test."""
    return FingerprintBackfill(app.database, app.services[SyncScheduler], lambda: now[0])


def asked(app: AppHarness) -> list[str]:
    """The models that backfills were enqueued for, in the order of their jobs."""
    query = select(JobRow.parameters).where(JobRow.kind == BACKFILL).order_by(JobRow.created_at)
    with app.database.reading() as session:
        return [each["model"] for each in session.scalars(query)]


def counts(app: AppHarness, source: SourceRecord) -> FingerprintCounts:
    """How far the fingerprints of a source are."""
    with app.database.reading() as session:
        found = app.services[SourceService].fingerprint_counts(session, [source])
    return found[source.id]


def test_the_last_changed_are_read_first(hub: Hub, backend: Backend, tmp_path: Path) -> None:
    """All are, once each; the source shows how many wait, and the tick is a job of the service."""
    with open_app(tmp_path, backend) as app:
        source = followed(hub, app, backfill_per_hour=None)
        hub.sent.clear()
        assert 5 == app.services[FingerprintBackfill].due()
        assert list(ORDER) == asked(app)
        assert FingerprintCounts(waiting=5) == counts(app, source)
        assert [BACKFILL] * 5 == [kind for kind in app.worker.run_all() if kind == BACKFILL]
        assert FingerprintCounts(read=5) == counts(app, source)
        assert [len(files(model(0))[FILE])] * 5 == hub.sent
        assert [False] * 5 == [stored(app, name) is None for name in ORDER]
        assert 0 == app.services[FingerprintBackfill].due()
    with open_app(tmp_path, backend) as app:
        with app.database.writing() as session:
            fingerprint_states.put_off(session, source.id, NOW - timedelta(days=9))
        assert BACKFILL_TICK in app.worker.tick()


def test_a_rate_holds(hub: Hub, app: AppHarness) -> None:
    """After a pause no more are asked for than in a tick."""
    source, now = followed(hub, app, backfill_per_hour=360), [NOW]  # one in ten seconds
    with app.database.writing() as session:
        fingerprint_states.put_off(session, source.id, NOW)
    backfill = backfill_of(app, now)
    enqueued = []
    for seconds in (0, 5, 5, 10, 3600, 0):
        now[0] += timedelta(seconds=seconds)
        enqueued.append(backfill.due())
    assert [1, 0, 1, 1, 1, 0] == enqueued
    assert list(ORDER[:4]) == asked(app)


def test_jobs_that_are_lost_are_asked_for_again(hub: Hub, app: AppHarness) -> None:
    """A day later: those that a client has cancelled, and those that have failed."""
    source, now = followed(hub, app, backfill_per_hour=None), [datetime.now(UTC)]
    backfill = backfill_of(app, now)
    assert 5 == backfill.due()
    hub.on_hub = answering(403)
    app.worker.run_all()
    assert FingerprintCounts(waiting=5) == counts(app, source)
    hub.on_hub = lambda _: False
    now[0] += timedelta(hours=23)
    assert 0 == backfill.due()
    now[0] += timedelta(hours=2)
    assert 5 == backfill.due()
    app.worker.run_all()
    assert FingerprintCounts(read=5) == counts(app, source)


def test_few_wait_at_a_time(hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """So what changes meanwhile comes before what is older; more are asked for as some end."""
    monkeypatch.setattr("app.hubs.backfill._MAX_AHEAD", 2)
    followed(hub, app, backfill_per_hour=None)
    now = [datetime.now(UTC)]
    backfill = backfill_of(app, now)
    enqueued = []
    for _ in range(4):
        now[0] += timedelta(seconds=10)
        enqueued.append(backfill.due())
        now[0] += timedelta(seconds=10)
        assert 0 == backfill.due()
        app.worker.run_all()
    assert [2, 2, 1, 0] == enqueued
    assert list(ORDER) == asked(app)


def test_a_source_of_which_nothing_waits_is_left_alone(hub: Hub, app: AppHarness) -> None:
    """For an hour: what waits by then is asked for; while jobs run, a tick looks again."""
    followed(hub, app, backfill_per_hour=None)
    now = [datetime.now(UTC)]
    backfill = backfill_of(app, now)

    def is_due(later: timedelta) -> bool:
        now[0] += later
        with app.database.reading() as session:
            return backfill.any_due(session)

    assert 5 == backfill.due()
    assert is_due(timedelta())
    assert 0 == backfill.due()  # five run
    assert [False, True] == [is_due(timedelta(seconds=s)) for s in (9, 1)]
    app.worker.run_all()
    assert 0 == backfill.due()
    app.http.delete("/v1/fingerprints/org/a")
    assert [False, True] == [is_due(timedelta(minutes=m)) for m in (59, 1)]
    assert 1 == backfill.due()


def test_dates_come_with_a_poll(hub: Hub, app: AppHarness) -> None:
    """Of models that were synced by a version that did not keep them."""
    followed(hub, app, backfill_per_hour=None, filters={"owners": ["org"]})
    with app.database.writing() as session:
        session.execute(update(SourceModelRow).values(hub_changed_at=None))
    [listed] = app.http.get("/v1/sources").json()["items"]
    app.http.post(f"/v1/sources/{listed['id']}/poll")
    app.worker.run_all()
    assert 5 == app.services[FingerprintBackfill].due()
    assert list(ORDER) == asked(app)


def test_models_that_cannot_be_read_wait_no_more(hub: Hub, app: AppHarness) -> None:
    """A model that has become a pickle was read as far as it can be, and its support stays."""
    source = followed(hub, app, backfill_per_hour=None)
    hub.push("org/b", {"pytorch_model.bin": b"pickle"})
    app.services[FingerprintBackfill].due()
    app.worker.run_all()
    assert FingerprintCounts(read=4, without=1) == counts(app, source)
    assert None is not app.hubs.model("org/b")


def test_a_source_without_fingerprints_asks_for_none(hub: Hub, app: AppHarness) -> None:
    """Until they are wanted; then a model that has changed meanwhile is read, too."""
    source = followed(hub, app, backfill_per_hour=None)
    app.services[FingerprintBackfill].due()
    app.worker.run_all()
    app.http.patch(f"/v1/sources/{source.id}", json={"fingerprints": False})
    hub.push("org/d", files(model(9)))
    assert "succeeded" == app.hubs.sync_model(source, "org/d").state
    assert FingerprintCounts(read=4, waiting=1) == counts(app, source)
    assert 0 == app.services[FingerprintBackfill].due()
    app.http.patch(f"/v1/sources/{source.id}", json={"fingerprints": True})
    assert 1 == app.services[FingerprintBackfill].due()
    assert "org/d" == asked(app)[-1]
