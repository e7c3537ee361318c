"""The job that fans events out: in which order, and that none is lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, select, update

from app.infra.db.database import Database
from app.infra.db.tables.webhooks import EventRow, WebhookDeliveryRow
from app.infra.errors import Unavailable
from app.jobs.service import JobService
from app.kinship.notifications import fan_out
from app.kinship.notifications.neighbor_changes import NeighborChanges
from app.webhooks.outbox import NEIGHBORS_CHANGED, SUPPORT_STORED
from tests.app.kinship.notifications.conftest import fresh, models_of
from tests.support.app.harness import AppHarness
from tests.support.http_space import related
from tests.support.servers.webhook_receiver import Receiver
from workers.scheduler import Scheduler


def test_changes_that_come_faster_than_their_fan_out(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """Several uncompared revisions are compared as one with the revision before them."""
    base, near = fresh(rng), fresh(rng)
    app.put_support(space, "y", near)
    app.put_support(space, "x", base)
    made = app.webhooks.subscribe(
        f"{receiver.url}/ok", NEIGHBORS_CHANGED, space=space, threshold=0.5
    )
    for support in (fresh(rng), related(rng, near, 0.9), fresh(rng), related(rng, near, 0.7)):
        app.put_support(space, "x", support)
    app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    data = json.loads(delivery["payload"])["data"]
    assert (5, 1) == (data["revision"], data["previous_revision"])
    assert [("y", "above")] == [(item["model"], item["crossed"]) for item in data["changes"]]


def test_a_space_has_one_job_for_its_events(
    app: AppHarness,
    space: str,
    receiver: Receiver,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job whose time slice ends goes on later: none beside it reports the same events."""
    monkeypatch.setattr(fan_out, "TIME_SLICE_S", 0.0)
    made = app.webhooks.subscribe(f"{receiver.url}/ok", SUPPORT_STORED, space=space)
    before = app.http.get("/v1/jobs", params={"kind": "events", "limit": 1000}).json()["items"]
    for number in range(3):
        app.put_support(space, f"m{number}", fresh(rng))
    app.worker.run_all()
    after = app.http.get("/v1/jobs", params={"kind": "events", "limit": 1000}).json()["items"]
    assert 1 == len(after) - len(before)
    assert ["m0", "m1", "m2"] == models_of(app, made)


@pytest.mark.slow
def test_events_of_their_own_come_before_what_is_compared(
    app: AppHarness,
    space: str,
    receiver: Receiver,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that wait have their deliveries when the first is compared, and each has one."""
    stored = app.webhooks.subscribe(f"{receiver.url}/ok", SUPPORT_STORED, space=space)
    app.webhooks.subscribe(f"{receiver.url}/ok", NEIGHBORS_CHANGED, space=space, threshold=0.5)
    names = [f"m{number}" for number in range(8)]
    for name in names:
        app.put_support(space, name, fresh(rng))
    whole = NeighborChanges.changes
    seen: list[str] = []

    def compared(self: NeighborChanges, *arguments: Any) -> Any:
        if not seen:
            with app.services[Database].writing() as session:
                body = WebhookDeliveryRow.subscription_id == stored["id"]
                found = session.scalars(select(WebhookDeliveryRow.body).where(body)).all()
                seen.extend(json.loads(one)["data"]["model"] for one in found)
                session.execute(delete(WebhookDeliveryRow).where(body))  # as a low quota does
        return whole(self, *arguments)

    monkeypatch.setattr(NeighborChanges, "changes", compared)
    app.worker.run_all()
    assert names == sorted(seen)
    assert [] == app.webhooks.deliveries(stored)
    with app.services[Database].reading() as reader:
        assert reader.scalar(select(EventRow.id).where(EventRow.fanned_out.is_(False))) is None


@pytest.mark.slow
def test_a_store_that_is_away_for_hours_delays_and_loses_nothing(
    app: AppHarness,
    space: str,
    receiver: Receiver,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known events are sent at once; those that need the store follow when it is back."""
    base = fresh(rng)
    app.put_support(space, "y", base)
    app.put_support(space, "x", fresh(rng))
    stored = app.webhooks.subscribe(f"{receiver.url}/ok", space=space)
    near = app.webhooks.subscribe(
        f"{receiver.url}/ok", NEIGHBORS_CHANGED, space=space, threshold=0.5
    )
    app.put_support(space, "x", related(rng, base, 0.9))
    app.put_support(space, "z", fresh(rng))
    whole = NeighborChanges.changes
    tries = []

    def away(self: NeighborChanges, space: Any, model: Any, *rest: Any) -> Any:
        if model.name != "x":
            return whole(self, space, model, *rest)
        tries.append(model.name)
        raise Unavailable("the folder is away")

    monkeypatch.setattr(NeighborChanges, "changes", away)
    schedule = Scheduler(app.services[Database], app.services[JobService])
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    app.worker.run_all()
    assert ["x", "z"] == models_of(app, stored)
    for hours in range(1, 20):
        with app.services[Database].writing() as session:
            earlier = datetime.now(UTC) - timedelta(hours=hours)
            waiting = update(EventRow).where(EventRow.fanned_out.is_(False))
            session.execute(waiting.values(created_at=earlier, due_at=earlier))
        for _ in range(2):  # the second time it is not due
            tomorrow += timedelta(seconds=10)
            schedule.tick(tomorrow)
            app.worker.run_all()
        assert hours + 1 == len(tries)
    assert [] == app.webhooks.deliveries(near)
    monkeypatch.undo()
    with app.services[Database].writing() as session:
        session.execute(update(EventRow).values(due_at=None))
    schedule.tick(tomorrow + timedelta(seconds=10))
    app.worker.run_all()
    assert (["x"], ["x", "z"]) == (models_of(app, near), models_of(app, stored))
    with app.services[Database].reading() as reader:
        assert reader.scalar(select(EventRow.id).where(EventRow.fanned_out.is_(False))) is None


def test_events_are_not_lost_with_their_worker(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """Committed events are sent although all their jobs were cancelled."""
    made = app.webhooks.subscribe(f"{receiver.url}/ok", space=space)
    app.put_support(space, "a", fresh(rng))
    for job in app.http.get("/v1/jobs?state=queued&kind=events").json()["items"]:
        assert 202 == app.http.post(f"/v1/jobs/{job['id']}/cancel").status_code
    assert [] == app.worker.run_all()
    assert [] == app.webhooks.deliveries(made)
    app.worker.age_events()
    assert "deliveries" in app.worker.tick()
    assert ["a"] == [
        json.loads(d["payload"])["data"]["model"] for d in app.webhooks.deliveries(made)
    ]
    assert ["succeeded"] == [delivery["state"] for delivery in app.webhooks.deliveries(made)]
