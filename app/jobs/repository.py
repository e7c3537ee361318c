"""Queries of requests about jobs: storing, showing and cancelling them.

The queries of workers are in ``queue``. No query here waits for a job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError

from app.infra.db.database import Reader, Writer
from app.infra.db.ids import is_id
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.tables.jobs import JobRow
from app.infra.db.tables.tenants import TenantRow
from app.infra.errors import JobNotFound
from app.jobs.records import CANCELLED, JobRecord, JobState
from app.tenancy.auth.records import OwnedSpace, Tenant
from modelkin.types.paging import Page

__all__ = [
    "cancel_unfinished",
    "count_unfinished",
    "find_job",
    "find_by_dedup_key",
    "get_job",
    "make_job_due",
    "insert_job",
    "jobs_by_id",
    "list_jobs",
    "lock_job",
    "record",
]

_COLUMNS = tuple(field.name for field in fields(JobRecord) if field.name != "tenant")
"""The attributes of a record that are columns of its row."""


def insert_job(
    session: Writer,
    tenant: Tenant,
    job_id: str,
    kind: str,
    parameters: Mapping[str, Any],
    *,
    space: OwnedSpace | str | None,
    dedup_key: str | None,
    now: datetime,
    not_before: datetime | None,
) -> JobRecord | None:
    """Insert a queued job; None if its id exists, or an unfinished job has its dedup key."""
    row = JobRow(
        id=job_id,
        tenant_id=tenant.id,
        space_id=None if space is None or isinstance(space, str) else space.id,
        space=space if space is None or isinstance(space, str) else space.name,
        kind=kind,
        state="queued",
        parameters=dict(parameters),
        dedup_key=dedup_key,
        attempts=0,
        cancel_requested=False,
        revision=1,
        created_at=now,
        not_before=not_before,
    )
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        return None
    return record(row, tenant)


def find_by_dedup_key(
    session: Reader, tenant: Tenant, kind: str, dedup_key: str
) -> JobRecord | None:
    """The unfinished job with this dedup key, or None."""
    query = select(JobRow).where(
        JobRow.tenant_id == tenant.id, JobRow.kind == kind, JobRow.dedup_key == dedup_key
    )
    row = session.scalar(query.execution_options(populate_existing=True))
    return None if row is None else record(row, tenant)


def find_job(session: Reader, tenant: Tenant, job_id: str) -> JobRecord | None:
    """The tenant's job of this id, or None."""
    row = _find(session, tenant, job_id)
    return None if row is None else record(row, tenant)


def get_job(session: Reader, tenant: Tenant, job_id: str) -> JobRecord:
    """The tenant's job of this id, or :class:`JobNotFound`."""
    return record(_row(session, tenant, job_id), tenant)


def make_job_due(session: Writer, job: JobRecord) -> None:
    """Make a queued job due now, if it is scheduled for later."""
    session.execute(
        update(JobRow)
        .where(JobRow.id == job.id, JobRow.state == "queued")
        .values(not_before=None)
        .execution_options(synchronize_session=False)
    )


def cancel_unfinished(
    session: Writer,
    tenant: Tenant,
    kinds: Collection[str],
    parameter: tuple[str, str],
    now: datetime,
) -> None:
    """Cancel the jobs of some kinds that have a parameter: queued ones at once.

    The running ones end as soon as their handlers notice. None of them can succeed any more.
    """
    name, value = parameter
    unfinished = (
        update(JobRow)
        .where(JobRow.tenant_id == tenant.id, JobRow.kind.in_(kinds))
        .where(JobRow.finished_at.is_(None), JobRow.parameters[name].as_string() == value)
        .values(cancel_requested=True, dedup_key=None, revision=JobRow.revision + 1)
        .execution_options(synchronize_session=False)
    )
    ended = {"state": "cancelled", "error": CANCELLED, "finished_at": now}
    session.execute(unfinished.where(JobRow.state == "queued").values(**ended))
    running = unfinished.where(JobRow.state == "running", JobRow.cancel_requested.is_(False))
    session.execute(running)


def jobs_by_id(session: Reader, ids: Collection[str]) -> dict[str, JobRecord]:
    """The existing jobs with these ids, of any tenant, by id."""
    query = select(JobRow, TenantRow).join(TenantRow, TenantRow.id == JobRow.tenant_id)
    found = session.execute(query.where(JobRow.id.in_(ids)))
    return {row.id: record(row, tenant) for row, tenant in found}


def count_unfinished(session: Reader, tenant: Tenant, *, but_for: Collection[str]) -> int:
    """Return the number of queued and running jobs of a tenant, except some kinds."""
    query = select(func.count()).where(
        JobRow.tenant_id == tenant.id, JobRow.kind.not_in(but_for), JobRow.finished_at.is_(None)
    )
    return session.scalars(query).one()


def list_jobs(
    session: Reader,
    tenant: Tenant,
    *,
    limit: int,
    cursor: str | None,
    state: JobState | None,
    kind: str | None,
    space: str | None,
) -> Page[JobRecord]:
    """The tenant's jobs, newest first; of a state, a kind, a space's name where one is given."""
    query = select(JobRow).where(JobRow.tenant_id == tenant.id)
    if cursor is not None:
        query = query.where(JobRow.id < decode_cursor(cursor))
    for column, wanted in ((JobRow.state, state), (JobRow.kind, kind), (JobRow.space, space)):
        if wanted is not None:
            query = query.where(column == wanted)
    query = query.order_by(JobRow.id.desc())
    count, more = page_length(session, query, limit)
    rows = session.scalars(query.limit(count)).all()
    return page_of((record(row, tenant) for row in rows), more, lambda job: job.id)


def lock_job(session: Writer, tenant: Tenant, job_id: str) -> JobRow:
    """The row of the tenant's job, locked until the transaction ends, or :class:`JobNotFound`."""
    return _row(session, tenant, job_id, lock=True)


def record(row: JobRow, tenant: Tenant | TenantRow) -> JobRecord:
    """The record of a row."""
    values = {name: getattr(row, name) for name in _COLUMNS}
    return JobRecord(tenant=Tenant(id=tenant.id, name=tenant.name), **values)


def _row(session: Reader, tenant: Tenant, job_id: str, *, lock: bool = False) -> JobRow:
    row = _find(session, tenant, job_id, lock=lock)
    if row is None:
        raise JobNotFound(f"there is no job {job_id!r}")
    return row


def _find(session: Reader, tenant: Tenant, job_id: str, *, lock: bool = False) -> JobRow | None:
    if not is_id(job_id):
        return None
    query = select(JobRow).where(JobRow.id == job_id, JobRow.tenant_id == tenant.id)
    return session.scalar(query.with_for_update() if lock else query)
