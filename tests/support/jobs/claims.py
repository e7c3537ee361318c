"""Registered workers, and claims of a job by its id; workers claim whichever job comes first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import update

from app.infra.db.database import Writer
from app.infra.db.tables.jobs import JobRow
from app.jobs import queue
from app.jobs.records import JobRecord
from tests.support.jobs.deployment import Deployment

__all__ = ["begin", "claim", "known"]


def claim(
    session: Writer, job: JobRecord, worker: str, at: datetime | None = None
) -> JobRecord | None:
    """Claim this job, due or not, as a worker does that finds no other; None if it is not free.

    For the time of the claim its kind is one that no other job has.
    """
    alone = f"only {job.id}"
    this = update(JobRow).where(JobRow.id == job.id)
    session.execute(this.values(kind=alone).execution_options(synchronize_session=False))
    due = max(at or datetime.now(UTC), job.not_before or datetime.min.replace(tzinfo=UTC))
    claimed = queue.claim(session, worker, job.tenant.id, [alone], due)
    session.execute(this.values(kind=job.kind).execution_options(synchronize_session=False))
    return None if claimed is None else replace(claimed, kind=job.kind)


def known(deployment: Deployment, worker: str) -> str:
    """A registered worker."""
    with deployment.database.writing() as session:
        queue.add_worker(session, worker, datetime.now(UTC))
    return worker


def begin(deployment: Deployment, job: JobRecord, worker: str) -> JobRecord:
    """The job, claimed by a worker."""
    with deployment.database.writing() as session:
        begun = claim(session, deployment.show(job), worker)
    assert begun is not None
    return begun
