"""Jobs of the version before: in whatever state they are, this version carries them out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from app.jobs.service import JobService
from app.settings import Settings
from tests.support.backends import Backend
from tests.support.servers.waiting import wait_for
from workers.named_worker import NamedWorker

BEFORE = "0035"
"""The last migration of the version before."""
NEW: dict[str, Any] = {
    "state": "queued",
    "dispatch_no": 1,
    "dispatched": False,
    "worker": None,
    "attempts": 0,
    "cancel_requested": False,
    "not_before": None,
}
"""A job that was enqueued just now."""
JOBS: dict[str, dict[str, Any]] = {
    "new": {},
    "dispatched": {"dispatched": True},
    "dispatched again": {"dispatched": True, "dispatch_no": 3, "attempts": 2},
    "waiting for a retry": {"attempts": 1, "not_before": "2026-01-01 00:00:00.000000+00:00"},
    "claimed": {"state": "running", "dispatched": True, "worker": "stopped", "attempts": 1},
    "cancelling": {
        "state": "running",
        "dispatched": True,
        "worker": "stopped",
        "attempts": 1,
        "cancel_requested": True,
    },
}
"""Jobs by their name, and what differs from a new one."""
INSERT = text(
    "INSERT INTO jobs (id, tenant_id, space, kind, state, parameters, dispatch_no, dispatched, "
    "worker, attempts, cancel_requested, revision, created_at, not_before) "
    "VALUES (:id, 1, :name, 'old', :state, '{}', :dispatch_no, :dispatched, "
    ":worker, :attempts, :cancel_requested, 1, '2026-01-01 00:00:00.000000+00:00', :not_before)"
)


@pytest.fixture
def database(backend: Backend, tmp_path: Path) -> Iterator[Database]:
    """A database of the version before, with jobs of a tenant and no worker."""
    with closing(Database(backend.url(tmp_path), timeout=10)) as opened:
        migrate(opened, revision=BEFORE)
        with opened.writing() as session:
            session.execute(text("INSERT INTO tenants (id, name) VALUES (1, 'old')"))
            for number, (name, changes) in enumerate(JOBS.items()):
                row = {"id": f"0198c7a2-5b7e-7cc3-98c4-{number:012}", "name": name, **NEW}
                session.execute(INSERT, {**row, **changes})
        yield opened


def test_an_upgrade_loses_no_job(database: Database) -> None:
    """Queued, dispatched, waiting and begun jobs are carried out, each once; one that was being
    cancelled is cancelled.
    """
    done: list[str] = []
    lock = threading.Lock()

    def handler(job: Any, _: object) -> dict[str, Any]:
        with lock:
            done.append(job.space)
        return {}

    migrate(database)
    jobs = JobService()
    jobs.register("old", handler)
    settings = Settings(database_url="sqlite:///x")
    worker = NamedWorker(settings, database, jobs, alone=True, nudge=lambda: None)

    def states() -> dict[str, str]:
        with database.reading() as session:
            return {row.space: row.state for row in session.execute(text("SELECT * FROM jobs"))}

    wait_for(lambda: worker.step() or set(states().values()) <= {"succeeded", "cancelled"})
    wait_for(lambda: not worker.step() and not worker.pool.held)
    assert worker.end()
    assert dict.fromkeys(JOBS, "succeeded") | {"cancelling": "cancelled"} == states()
    assert sorted(set(JOBS) - {"cancelling"}) == sorted(done)
