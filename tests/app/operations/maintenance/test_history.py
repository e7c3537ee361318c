"""Bounds of what stays: the newest events, deliveries, finished jobs and hub events of a tenant."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import select

from app.hubs.repositories import hub_events
from app.infra.db.database import Database
from app.infra.db.ids import new_id
from app.infra.db.tables.hubs import HubEventRow, SourceRow
from app.infra.db.tables.jobs import JobRow
from app.infra.db.tables.webhooks import EventRow, SubscriptionRow, WebhookDeliveryRow
from app.jobs import queue
from app.operations.maintenance.history import HistoryBounds
from app.tenancy.auth.tenants import ensure_tenant
from app.tenancy.quotas.records import Quotas
from app.tenancy.quotas.service import QuotaService
from app.webhooks.repositories import deliveries as delivery_repository
from app.webhooks.repositories import events as event_repository

START = datetime(2026, 1, 1, tzinfo=UTC)
QUOTAS = QuotaService(Quotas(events=1000, deliveries=1000))


def moment(number: int) -> datetime:
    """The time of the row with this number."""
    return START + timedelta(seconds=number)


class History:
    """Tenants with rows that are numbered from the oldest on."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.ids: dict[str, list[Any]] = {}

    def tenant(self, name: str, **quotas: int) -> int:
        """A tenant with quotas of its own."""
        with self.database.writing() as session:
            tenant = ensure_tenant(session, name)
            QUOTAS.set(session, tenant.id, quotas)
        return tenant.id

    def add(self, table: type[Any], rows: list[Mapping[str, Any]]) -> list[Any]:
        """Insert rows; their ids."""
        made = [table(**row) for row in rows]
        with self.database.writing() as session:
            session.add_all(made)
            session.flush()
            return [row.id for row in made]

    def events(self, tenant: int, done: str) -> list[Any]:
        """Events: ``+`` for one that is fanned out, ``-`` for one that waits."""
        return self.add(
            EventRow,
            [
                {
                    "id": new_id(moment(number)),
                    "tenant_id": tenant,
                    "type": "support.stored",
                    "space_id": 1,
                    "space": "s",
                    "tags": [],
                    "data": {},
                    "fanned_out": sign == "+",
                    "neighbors_compared": False,
                    "failures": 0,
                    "created_at": moment(number),
                }
                for number, sign in enumerate(done)
            ],
        )

    def jobs(self, tenant: int, done: str) -> list[Any]:
        """Jobs: ``+`` for one that has succeeded, ``-`` for one that waits."""
        return self.add(
            JobRow,
            [
                {
                    "id": new_id(moment(number)),
                    "tenant_id": tenant,
                    "kind": "ingest",
                    "state": "succeeded" if sign == "+" else "queued",
                    "parameters": {},
                    "attempts": 0,
                    "cancel_requested": False,
                    "revision": 1,
                    "created_at": moment(number),
                    "finished_at": moment(number) if sign == "+" else None,
                }
                for number, sign in enumerate(done)
            ],
        )

    def deliveries(self, tenant: int, done: str) -> list[Any]:
        """Deliveries: ``+`` for one that succeeded, ``-`` for a pending one."""
        [to] = self.add(
            SubscriptionRow,
            [
                {
                    "id": new_id(moment(tenant)),
                    "tenant_id": tenant,
                    "url": "http://127.0.0.1:9/",
                    "events": [],
                    "secret": b"",
                    "enabled": True,
                    "failures": 0,
                    "created_at": START,
                    "updated_at": START,
                }
            ],
        )
        return self.add(
            WebhookDeliveryRow,
            [
                {
                    "id": new_id(moment(number)),
                    "tenant_id": tenant,
                    "subscription_id": to,
                    "event_id": new_id(moment(number)),
                    "type": "ping",
                    "body": b"{}",
                    "state": "succeeded" if sign == "+" else "pending",
                    "attempts": 1,
                    "log": [],
                    "due_at": None if sign == "+" else moment(number),
                    "created_at": moment(number),
                    "finished_at": moment(number) if sign == "+" else None,
                }
                for number, sign in enumerate(done)
            ],
        )

    def hub_events(self, tenant: int, done: str) -> list[Any]:
        """Events of a new source."""
        [source] = self.add(
            SourceRow,
            [
                {
                    "id": new_id(moment(tenant)),
                    "tenant_id": tenant,
                    "kind": "huggingface",
                    "space": "s",
                    "secret": b"",
                    "filters": {},
                    "on_delete": "keep",
                    "created_at": START,
                    "updated_at": START,
                }
            ],
        )
        return self.add(
            HubEventRow,
            [
                {
                    "source_id": source,
                    "event_id": str(number),
                    "event": "push",
                    "outcome": "ignored",
                    "received_at": moment(number),
                }
                for number, _ in enumerate(done)
            ],
        )

    def left(self, table: type[Any]) -> set[Any]:
        """The ids that are left in a table."""
        with self.database.reading() as session:
            return set(session.scalars(select(table.id)))


@pytest.fixture
def history(database: Database) -> History:
    """An empty database."""
    return History(database)


def bound(history: History, **options: float) -> None:
    """Run a round."""
    HistoryBounds(history.database, QUOTAS, **options).run_once(threading.Event())


@pytest.mark.parametrize(
    ("kind", "table", "quota"),
    [
        ("events", EventRow, "events"),
        ("deliveries", WebhookDeliveryRow, "deliveries"),
        ("jobs", JobRow, "events"),
        ("hub_events", HubEventRow, "events"),
    ],
)
def test_the_newest_of_a_tenant_stay(
    history: History, kind: str, table: type[Any], quota: str
) -> None:
    """Whatever their age, and more than one batch of them; those of another tenant stay."""
    busy, calm = history.tenant("busy", **{quota: 30}), history.tenant("calm")
    many = getattr(history, kind)(busy, 600 * "+")
    others = getattr(history, kind)(calm, 50 * "+")
    bound(history)
    assert {*many[-30:], *others} == history.left(table)


@pytest.mark.parametrize(
    ("kind", "table", "repository", "count"),
    [
        ("events", EventRow, event_repository, "count_of_tenant"),
        ("deliveries", WebhookDeliveryRow, delivery_repository, "count_of_tenant"),
        ("jobs", JobRow, queue, "count_of_tenant"),
        ("hub_events", HubEventRow, hub_events, "count_events"),
    ],
)
def test_processes_that_prune_at_once_delete_no_more_than_one(
    history: History,
    kind: str,
    table: type[Any],
    repository: ModuleType,
    count: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All have counted before the first deletes; each deletes what is too much by then."""
    of = history.tenant("busy", events=30, deliveries=30)
    many = getattr(history, kind)(of, 250 * "+")
    counted, counting = threading.Barrier(3, timeout=20), getattr(repository, count)

    def together(*arguments: Any, **of: Any) -> int:
        found: int = counting(*arguments, **of)
        if found == len(many):
            counted.wait()
        return found

    monkeypatch.setattr(repository, count, together)
    processes = [
        threading.Thread(
            target=HistoryBounds(history.database, QUOTAS).run_once, args=(threading.Event(),)
        )
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert {*many[-30:]} == history.left(table)


@pytest.mark.parametrize(
    ("kind", "table", "quota"),
    [("events", EventRow, "events"), ("deliveries", WebhookDeliveryRow, "deliveries")],
)
def test_what_waits_stays_before_what_is_done(
    history: History, kind: str, table: type[Any], quota: str
) -> None:
    """An old pending one outlives finished ones; only where too many wait the oldest go."""
    tenant = history.tenant("t", **{quota: 4})
    first = getattr(history, kind)(tenant, "--+++++-")
    bound(history)
    assert {first[0], first[1], first[6], first[7]} == history.left(table)
    more = getattr(history, kind)(history.tenant("u", **{quota: 2}), "-+---")
    bound(history)
    assert {first[0], first[1], first[6], first[7], *more[-2:]} == history.left(table)


def test_jobs_that_wait_stay(history: History) -> None:
    """However many there are; quotas of the queue refuse them when they are made."""
    made = history.jobs(history.tenant("t", events=2), "---+++")
    bound(history)
    assert set(made[:3]) == history.left(JobRow)


def test_rounds_go_on_where_the_last_one_stopped(history: History) -> None:
    """A round without time for all tenants bounds one, the next round the next."""
    made = [history.events(history.tenant(f"t{n}", events=1), "++") for n in range(3)]
    bounds = HistoryBounds(history.database, QUOTAS, round_seconds=0)
    for _ in range(12):
        bounds.run_once(threading.Event())
    assert {ids[-1] for ids in made} == history.left(EventRow)
