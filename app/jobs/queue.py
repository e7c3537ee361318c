"""Queries of the workers: ready jobs, job claims and heartbeats.

The ``worker`` and ``attempts`` of a job identify its claim. Every write about a running job names
both, so it changes nothing once the job was taken over, cancelled or ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, func, or_, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.excess import excess_of
from app.infra.db.tables.jobs import JobRow, WorkerRow
from app.infra.db.tables.tenants import TenantRow
from app.jobs.records import JobRecord, JobState, QueueName, kept_parameters
from app.jobs.repository import record

__all__ = [
    "Dispatch",
    "add_worker",
    "any_unfinished",
    "heartbeat",
    "claim",
    "count_of_tenant",
    "heartbeats",
    "finish",
    "unfinished_dispatches",
    "is_cancel_requested",
    "mark_dispatched",
    "record_progress",
    "redispatch",
    "ready_dispatches",
    "prune",
    "prune_oldest",
    "requeue",
    "remove_workers",
]

_UNFINISHED = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One dispatch of a job: the workers' queue receives it exactly once.

    Attributes:
        worker: the name of the worker that carries it out; None while it is queued.
        kind: of the job.
    """

    job_id: str
    dispatch_no: int
    tenant_id: int
    worker: str | None
    kind: str = ""


# --- dispatch -------------------------------------------------------------------------------------


def any_unfinished(session: Reader) -> bool:
    """Whether any job is queued or running."""
    query = select(JobRow.id).where(JobRow.state.in_(_UNFINISHED)).limit(1)
    return session.scalar(query) is not None


def ready_dispatches(
    session: Reader, now: datetime, *, per_tenant: int, queues: Mapping[str, QueueName]
) -> list[Dispatch]:
    """The jobs that are due and not dispatched, oldest first.

    Args:
        per_tenant: the most dispatched jobs of one tenant that wait in a queue, so that none fills
            it.
        queues: the queue of each kind, "jobs" by default.
    """
    by_queue: dict[str, list[str]] = {}
    for kind, name in queues.items():
        by_queue.setdefault(name, []).append(kind)
    place = func.row_number().over(
        partition_by=(JobRow.tenant_id, *(JobRow.kind.in_(kinds) for kinds in by_queue.values())),
        order_by=(JobRow.dispatched.desc(), JobRow.id),
    )
    waiting = (
        select(
            JobRow.id,
            JobRow.dispatch_no,
            JobRow.tenant_id,
            JobRow.kind,
            JobRow.dispatched,
            place.label("place"),
        )
        .where(JobRow.state == "queued", or_(JobRow.not_before.is_(None), JobRow.not_before <= now))
        .subquery()
    )
    query = (
        select(waiting.c.id, waiting.c.dispatch_no, waiting.c.tenant_id, waiting.c.kind)
        .where(waiting.c.place <= per_tenant, waiting.c.dispatched.is_(False))
        .order_by(waiting.c.id)
    )
    return [
        Dispatch(row.id, row.dispatch_no, row.tenant_id, None, row.kind)
        for row in session.execute(query)
    ]


def mark_dispatched(session: Writer, dispatches: Iterable[Dispatch]) -> None:
    """Record that these jobs were dispatched."""
    for dispatch in dispatches:
        _change(session, _is(dispatch.job_id, dispatch.dispatch_no), dispatched=True)


def unfinished_dispatches(session: Reader) -> list[Dispatch]:
    """The dispatches of all unfinished jobs."""
    columns = (
        JobRow.id,
        JobRow.dispatch_no,
        JobRow.tenant_id,
        JobRow.state,
        JobRow.worker,
        JobRow.kind,
    )
    rows = session.execute(select(*columns).where(JobRow.state.in_(_UNFINISHED), JobRow.dispatched))
    return [
        Dispatch(
            row.id,
            row.dispatch_no,
            row.tenant_id,
            row.worker if row.state == "running" else None,
            row.kind,
        )
        for row in rows
    ]


def redispatch(session: Writer, dispatch: Dispatch) -> bool:
    """Dispatch a job again whose dispatch was lost; False if it has ended or is running."""
    carried = (
        JobRow.worker.is_(None) if dispatch.worker is None else JobRow.worker == dispatch.worker
    )
    state = "queued" if dispatch.worker is None else "running"
    return _change(
        session,
        _is(dispatch.job_id, dispatch.dispatch_no) & (JobRow.state == state) & carried,
        state="queued",
        worker=None,
        dispatch_no=JobRow.dispatch_no + 1,
        dispatched=False,
        revision=JobRow.revision + 1,
    )


# --- claims ---------------------------------------------------------------------------------------


def claim(
    session: Writer, job_id: str, dispatch_no: int, worker: str, now: datetime
) -> tuple[JobRecord, str | None] | None:
    """Claim a job for a worker.

    Returns the job and the name of the dead worker that held it, if any; None if the job is not
    available.

    A job is available while it is queued, or when its worker is no longer registered. A worker
    that lost the answer may claim its job again; this does not count as another attempt.
    """
    query = select(JobRow, TenantRow).join(TenantRow, TenantRow.id == JobRow.tenant_id)
    found = session.execute(
        query.where(JobRow.id == job_id).with_for_update(of=JobRow)
    ).one_or_none()
    if found is None:
        return None
    row, tenant = found
    if row.dispatch_no != dispatch_no or row.finished_at is not None:
        return None
    before = row.worker if row.state == "running" else None
    if before == worker:
        return record(row, tenant), None
    if before is not None and session.get(WorkerRow, before) is not None:
        return None
    row.state, row.worker, row.dispatched = "running", worker, True
    row.attempts += 1
    row.revision += 1
    row.started_at = row.started_at or now
    session.flush()
    return record(row, tenant), before


def record_progress(session: Writer, job: JobRecord, progress: Mapping[str, Any]) -> bool | None:
    """Store a job's progress; whether it is being cancelled, or None if the claim is lost."""
    done = session.execute(
        update(JobRow)
        .where(_claimed(job))
        .values(progress=dict(progress), revision=JobRow.revision + 1)
        .returning(JobRow.cancel_requested)
        .execution_options(synchronize_session=False)
    )
    return done.scalar_one_or_none()


def is_cancel_requested(session: Reader, job: JobRecord) -> bool | None:
    """Whether a job is being cancelled, or None if the claim is lost."""
    return session.scalar(select(JobRow.cancel_requested).where(_claimed(job)))


def finish(
    session: Writer,
    job: JobRecord,
    state: JobState,
    now: datetime,
    *,
    progress: Mapping[str, Any] | None = None,
    result: Mapping[str, Any] | None = None,
    error: Mapping[str, Any] | None = None,
) -> bool:
    """End a job; False if the claim is lost, or if a success comes after a cancellation."""
    condition = _claimed(job)
    if state == "succeeded":
        condition &= JobRow.cancel_requested.is_(False)
    reported = {} if progress is None else {"progress": dict(progress)}
    return _change(
        session,
        condition,
        state=state,
        parameters=kept_parameters(job.parameters),
        result=None if result is None else dict(result),
        error=None if error is None else dict(error),
        dedup_key=None,
        finished_at=now,
        revision=JobRow.revision + 1,
        **reported,
    )


def requeue(
    session: Writer,
    job: JobRecord,
    *,
    error: Mapping[str, Any] | None,
    not_before: datetime | None,
    counts: bool,
) -> bool:
    """Queue a job for another dispatch; False if the claim is lost.

    Args:
        error: the reason, shown until the job ends.
        not_before: the earliest time of that dispatch.
        counts: whether this attempt counts towards the job's limit.
    """
    return _change(
        session,
        _claimed(job),
        state="queued",
        worker=None,
        dispatch_no=JobRow.dispatch_no + 1,
        dispatched=False,
        attempts=job.attempts if counts else job.attempts - 1,
        error=None if error is None else dict(error),
        not_before=not_before,
        revision=JobRow.revision + 1,
    )


def record_error(session: Writer, job: JobRecord, error: Mapping[str, Any]) -> bool:
    """Show the error of an earlier attempt while the job continues."""
    return _change(session, _claimed(job), error=dict(error), revision=JobRow.revision + 1)


def prune(session: Writer, before: datetime, *, limit: int) -> int:
    """Delete at most ``limit`` jobs that ended before a moment; returns how many."""
    old = select(JobRow.id).where(JobRow.finished_at < before).limit(limit)
    gone = session.execute(
        delete(JobRow)
        .where(JobRow.id.in_(old.scalar_subquery()))
        .returning(JobRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


def count_of_tenant(session: Reader, tenant_id: int) -> int:
    """How many jobs of a tenant there are, of every state."""
    return session.scalars(_counted(tenant_id)).one()


def prune_oldest(session: Writer, kept: int, limit: int, tenant_id: int) -> tuple[int, int]:
    """Delete at most ``limit`` of the oldest finished jobs of a tenant beyond ``kept`` jobs.

    Jobs that wait or run stay. Returns how many, and 0.
    """
    finished = JobRow.tenant_id == tenant_id, JobRow.finished_at.is_not(None)
    old = select(JobRow.id).where(*finished).order_by(JobRow.id)
    old = old.limit(excess_of(_counted(tenant_id), kept, limit))
    gone = session.execute(
        delete(JobRow)
        .where(JobRow.id.in_(old.scalar_subquery()))
        .returning(JobRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all()), 0


def _counted(tenant_id: int) -> Select[int]:
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


def _is(job_id: str, dispatch_no: int) -> ColumnElement[bool]:
    return (JobRow.id == job_id) & (JobRow.dispatch_no == dispatch_no)


def _claimed(job: JobRecord) -> ColumnElement[bool]:
    """The condition that the claim in this record of a job is still valid."""
    return (
        (JobRow.id == job.id)
        & (JobRow.state == "running")
        & (JobRow.worker == job.worker)
        & (JobRow.attempts == job.attempts)
    )


def _change(session: Writer, condition: ColumnElement[bool], **values: Any) -> bool:
    """Update the rows that fulfil a condition; whether there were any."""
    done = session.execute(
        update(JobRow)
        .where(condition)
        .values(**values)
        .returning(JobRow.id)
        .execution_options(synchronize_session=False)
    )
    return done.first() is not None
