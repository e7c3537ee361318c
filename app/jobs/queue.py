"""Queries of the workers: claims of waiting jobs, heartbeats and retention.

The table of jobs is the queue. A worker claims a job by a change of its row, which then names the
worker and counts its attempts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Select, delete, func, or_, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.excess import excess_of
from app.infra.db.tables.jobs import JobRow, WorkerRow
from app.infra.db.tables.tenants import TenantRow
from app.jobs.records import CANCELLED, JobRecord, JobState, kept_parameters
from app.jobs.repository import record

__all__ = [
    "MAX_ATTEMPTS",
    "add_worker",
    "any_unfinished",
    "available",
    "claim",
    "count_of_tenant",
    "heartbeat",
    "heartbeats",
    "prune",
    "prune_oldest",
    "remove_workers",
]

MAX_ATTEMPTS: Final = 5
"""Attempts at a job before its last error fails it."""
_UNFINISHED = ("queued", "running")
_LOST = "its worker died while it carried out this job"

log = logging.getLogger(__name__)


# --- claims ---------------------------------------------------------------------------------------


def any_unfinished(session: Reader) -> bool:
    """Whether any job is queued or running."""
    query = select(JobRow.id).where(JobRow.state.in_(_UNFINISHED)).limit(1)
    return session.scalar(query) is not None


def available(
    session: Reader, worker: str, now: datetime, *, held: Collection[str] | None = None
) -> list[tuple[int, str]]:
    """The tenants and kinds of the jobs that a worker may claim.

    A job is available while it is queued and due, or when its worker is no longer registered.

    Args:
        held: the jobs that the worker is carrying out. Other jobs that the table assigns to it are
            available, too: the worker lost the answer to its claim. None for no such check.
    """
    query = select(JobRow.tenant_id, JobRow.kind).where(_is_available(worker, now, held))
    return [(row.tenant_id, row.kind) for row in session.execute(query.distinct())]


def claim(
    session: Writer,
    worker: str,
    tenant_id: int,
    kinds: Collection[str],
    now: datetime,
    *,
    held: Collection[str] | None = None,
) -> JobRecord | None:
    """Claim the available job of a tenant that was queued first, or None where there is none.

    A job that was cancelled, or that killed too many workers, ends at once in place of a claim. A
    worker that lost the answer may claim its job again; this does not count as another attempt.

    Args:
        kinds: the kinds that the job may have.
        held: the jobs that the worker carries out, as in :func:`available`.
    """
    query = (
        select(JobRow, TenantRow)
        .join(TenantRow, TenantRow.id == JobRow.tenant_id)
        .where(JobRow.tenant_id == tenant_id, JobRow.kind.in_(kinds))
        .where(_is_available(worker, now, held))
        .order_by(func.coalesce(JobRow.queued_at, JobRow.created_at), JobRow.id)
        .limit(1)
    )
    # Postgres only: SQLite has one writer at a time.
    found = session.execute(query.with_for_update(of=JobRow, skip_locked=True)).one_or_none()
    if found is None:
        return None
    row, tenant = found
    before = row.worker if row.state == "running" else None
    if before != worker:
        # The query may have read the workers before this one was registered.
        if before is not None and session.get(WorkerRow, before) is not None:
            return None
        row.attempts += 1
    row.state, row.worker, row.started_at = "running", worker, row.started_at or now
    row.revision += 1
    if before not in (None, worker):
        log.warning("worker %s died while it carried out job %s", before, row.id)
        row.error = {"code": "worker_lost", "detail": f"{_LOST}: it was started again"}
        if row.attempts > MAX_ATTEMPTS:
            detail = f"{_LOST}, as others before it: {MAX_ATTEMPTS} attempts were made"
            _end(row, "failed", {"code": "worker_lost", "detail": detail}, now)
    if row.cancel_requested and row.finished_at is None:
        _end(row, "cancelled", CANCELLED, now)
    session.flush()
    return record(row, tenant)


def _end(row: JobRow, state: JobState, error: dict[str, str], now: datetime) -> None:
    row.state, row.error, row.finished_at, row.dedup_key = state, error, now, None
    row.parameters = kept_parameters(row.parameters)


def _is_available(worker: str, now: datetime, held: Collection[str] | None) -> ColumnElement[bool]:
    due = or_(JobRow.not_before.is_(None), JobRow.not_before <= now)
    lost: ColumnElement[bool] = JobRow.worker.not_in(select(WorkerRow.id))
    if held is not None:
        lost |= (JobRow.worker == worker) & JobRow.id.not_in(held)
    # The first condition finds the index.
    return JobRow.state.in_(_UNFINISHED) & or_(
        (JobRow.state == "queued") & due, (JobRow.state == "running") & lost
    )


# --- retention ------------------------------------------------------------------------------------


def prune(session: Writer, before: datetime, *, limit: int) -> int:
    """Delete at most ``limit`` jobs that ended before a moment; returns how many."""
    return _delete(session, select(JobRow.id).where(JobRow.finished_at < before).limit(limit))


def count_of_tenant(session: Reader, tenant_id: int) -> int:
    """Return the number of jobs of a tenant, in any state."""
    return session.scalars(_count_query(tenant_id)).one()


def prune_oldest(session: Writer, kept: int, limit: int, tenant_id: int) -> tuple[int, int]:
    """Delete at most ``limit`` of the oldest finished jobs of a tenant beyond ``kept`` jobs.

    Jobs that wait or run stay. Returns the number of deleted jobs, and 0: no waiting job is
    deleted.
    """
    finished = JobRow.tenant_id == tenant_id, JobRow.finished_at.is_not(None)
    old = select(JobRow.id).where(*finished).order_by(JobRow.id)
    return _delete(session, old.limit(excess_of(_count_query(tenant_id), kept, limit))), 0


def _delete(session: Writer, jobs: Select[str]) -> int:
    gone = session.execute(
        delete(JobRow)
        .where(JobRow.id.in_(jobs.scalar_subquery()))
        .returning(JobRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


def _count_query(tenant_id: int) -> Select[int]:
    return select(func.count()).where(JobRow.tenant_id == tenant_id)


# --- workers --------------------------------------------------------------------------------------


def add_worker(session: Writer, worker: str, now: datetime) -> None:
    """Register a worker."""
    session.add(WorkerRow(id=worker, started_at=now, heartbeat_seq=0))


def heartbeat(session: Writer, worker: str) -> bool:
    """Count one heartbeat of a worker; False where it is not registered any more."""
    done = session.execute(
        update(WorkerRow)
        .where(WorkerRow.id == worker)
        .values(heartbeat_seq=WorkerRow.heartbeat_seq + 1)
        .returning(WorkerRow.id)
        .execution_options(synchronize_session=False)
    )
    return done.first() is not None


def heartbeats(session: Reader) -> dict[str, int]:
    """The registered workers, each with the number of its last heartbeat."""
    return {
        row.id: row.heartbeat_seq
        for row in session.execute(select(WorkerRow.id, WorkerRow.heartbeat_seq))
    }


def remove_workers(session: Writer, silent: Mapping[str, int]) -> list[str]:
    """Unregister silent workers, unless a heartbeat came since; returns those removed.

    Args:
        silent: the number of the last known heartbeat, by worker.
    """
    gone = []
    for worker, last in silent.items():
        found = session.execute(
            delete(WorkerRow)
            .where(WorkerRow.id == worker, WorkerRow.heartbeat_seq == last)
            .returning(WorkerRow.id)
            .execution_options(synchronize_session=False)
        )
        gone += [row.id for row in found]
    return gone
