"""Queries of the workers: ready jobs, job claims and heartbeats.

Who carries out a job is its ``worker`` and ``attempts`` together: every write about a running job
names them, and changes nothing once it was taken over, cancelled or ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, func, or_, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.jobs import JobRow, WorkerRow
from app.infra.db.tables.tenants import TenantRow
from app.jobs.records import JobRecord, JobState
from app.jobs.repository import record

__all__ = [
    "ReadyJob",
    "add_worker",
    "any_unfinished",
    "heartbeat",
    "begin",
    "heartbeats",
    "finish",
    "dispatched_jobs",
    "is_cancel_requested",
    "mark_dispatched",
    "note_progress",
    "redispatch",
    "ready_jobs",
    "prune",
    "requeue",
    "remove_workers",
]

_UNFINISHED = ("queued", "running")


@dataclass(frozen=True, slots=True)
class ReadyJob:
    """One dispatch of a job: the workers' queue receives it exactly once.

    Attributes:
        worker: who carries it out; None while it waits.
        kind: of the job.
    """

    job_id: str
    dispatch_no: int
    tenant_id: int
    worker: str | None
    kind: str = ""


# --- what waits -----------------------------------------------------------------------------------


def any_unfinished(session: Reader) -> bool:
    """Whether there is anything for workers to do, now or later."""
    query = select(JobRow.id).where(JobRow.state.in_(_UNFINISHED)).limit(1)
    return session.scalar(query) is not None


def ready_jobs(
    session: Reader, now: datetime, *, each: int, apart: Collection[str] = ()
) -> list[ReadyJob]:
    """The jobs that are due and not dispatched, oldest first.

    Args:
        each: dispatched jobs of one tenant that may wait at a time, so that no tenant fills
            the queue.
        apart: the kinds that wait in a queue of their own, and so are counted for themselves.
    """
    place = func.row_number().over(
        partition_by=(JobRow.tenant_id, JobRow.kind.in_(apart)),
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
        .where(waiting.c.place <= each, waiting.c.dispatched.is_(False))
        .order_by(waiting.c.id)
    )
    return [
        ReadyJob(row.id, row.dispatch_no, row.tenant_id, None, row.kind)
        for row in session.execute(query)
    ]


def mark_dispatched(session: Writer, handed_over: Iterable[ReadyJob]) -> None:
    """Record that these jobs were dispatched."""
    for offer in handed_over:
        _change(session, _is(offer.job_id, offer.dispatch_no), dispatched=True)


def dispatched_jobs(session: Reader) -> list[ReadyJob]:
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
        ReadyJob(
            row.id,
            row.dispatch_no,
            row.tenant_id,
            row.worker if row.state == "running" else None,
            row.kind,
        )
        for row in rows
    ]


def redispatch(session: Writer, offer: ReadyJob) -> bool:
    """Dispatch a job anew whose dispatch was lost; False where it has ended, or goes on."""
    carried = JobRow.worker.is_(None) if offer.worker is None else JobRow.worker == offer.worker
    state = "queued" if offer.worker is None else "running"
    return _change(
        session,
        _is(offer.job_id, offer.dispatch_no) & (JobRow.state == state) & carried,
        state="queued",
        worker=None,
        dispatch_no=JobRow.dispatch_no + 1,
        dispatched=False,
        revision=JobRow.revision + 1,
    )


# --- carrying out ---------------------------------------------------------------------------------


def begin(
    session: Writer, job_id: str, dispatch_no: int, worker: str, now: datetime
) -> tuple[JobRecord, str | None] | None:
    """Take a job, and who held it before and is dead; None where it is not to be taken.

    It is taken while it waits, or from a worker that nobody knows any more. A worker that asks
    again, because it never heard the answer, has it already: that is no further attempt.
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


def note_progress(session: Writer, job: JobRecord, progress: Mapping[str, Any]) -> bool | None:
    """Store how far a job is; whether it is being cancelled, None where it is not held any more."""
    done = session.execute(
        update(JobRow)
        .where(_held(job))
        .values(progress=dict(progress), revision=JobRow.revision + 1)
        .returning(JobRow.cancel_requested)
        .execution_options(synchronize_session=False)
    )
    return done.scalar_one_or_none()


def is_cancel_requested(session: Reader, job: JobRecord) -> bool | None:
    """Whether a job is being cancelled, None where it is not held any more."""
    return session.scalar(select(JobRow.cancel_requested).where(_held(job)))


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
    """End a job; False where it is not held any more, and, for a success, where it is cancelled."""
    condition = _held(job)
    if state == "succeeded":
        condition &= JobRow.cancel_requested.is_(False)
    told = {} if progress is None else {"progress": dict(progress)}
    return _change(
        session,
        condition,
        state=state,
        result=None if result is None else dict(result),
        error=None if error is None else dict(error),
        dedup_key=None,
        finished_at=now,
        revision=JobRow.revision + 1,
        **told,
    )


def requeue(
    session: Writer,
    job: JobRecord,
    *,
    error: Mapping[str, Any] | None,
    not_before: datetime | None,
    counts: bool,
) -> bool:
    """Let a job wait for another dispatch; False where it is not held any more.

    Args:
        error: why, shown until the job ends.
        not_before: the earliest time of that dispatch.
        counts: this attempt is one of those that a job has.
    """
    return _change(
        session,
        _held(job),
        state="queued",
        worker=None,
        dispatch_no=JobRow.dispatch_no + 1,
        dispatched=False,
        attempts=job.attempts if counts else job.attempts - 1,
        error=None if error is None else dict(error),
        not_before=not_before,
        revision=JobRow.revision + 1,
    )


def note_error(session: Writer, job: JobRecord, error: Mapping[str, Any]) -> bool:
    """Show what went wrong before; the job goes on."""
    return _change(session, _held(job), error=dict(error), revision=JobRow.revision + 1)


def prune(session: Writer, before: datetime, *, limit: int) -> int:
    """Forget jobs that ended before a moment, at most so many; how many."""
    old = select(JobRow.id).where(JobRow.finished_at < before).limit(limit)
    gone = session.execute(
        delete(JobRow)
        .where(JobRow.id.in_(old.scalar_subquery()))
        .returning(JobRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


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


def _held(job: JobRecord) -> ColumnElement[bool]:
    """That a job is still in the hands of whoever has this record of it."""
    return (
        (JobRow.id == job.id)
        & (JobRow.state == "running")
        & (JobRow.worker == job.worker)
        & (JobRow.attempts == job.attempts)
    )


def _change(session: Writer, condition: ColumnElement[bool], **values: Any) -> bool:
    """Whether there was a row to change."""
    done = session.execute(
        update(JobRow)
        .where(condition)
        .values(**values)
        .returning(JobRow.id)
        .execution_options(synchronize_session=False)
    )
    return done.first() is not None
