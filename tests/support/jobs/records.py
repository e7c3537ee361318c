"""Records of jobs, and access to their optional parts, which fails the test if one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from app.jobs.records import JobRecord
from app.tenancy.auth.records import Tenant

__all__ = ["error_of", "job_of", "progress_of", "result_of", "span_of"]


def job_of(job_id: str, tenant: Tenant, kind: str = "count", **others: Any) -> JobRecord:
    """A queued job that is in no database."""
    values: dict[str, Any] = {
        "space_id": None,
        "space": None,
        "parameters": {},
        "state": "queued",
        "progress": None,
        "result": None,
        "error": None,
        "attempts": 0,
        "cancel_requested": False,
        "revision": 1,
        "created_at": datetime.now(UTC),
        "not_before": None,
        "started_at": None,
        "finished_at": None,
        "worker": None,
    }
    return JobRecord(id=job_id, tenant=tenant, kind=kind, **{**values, **others})


def error_of(job: JobRecord) -> Mapping[str, Any]:
    """The error of a job that has one."""
    assert job.error is not None, job
    return job.error


def progress_of(job: JobRecord) -> Mapping[str, Any]:
    """The progress of a job that has reported some."""
    assert job.progress is not None, job
    return job.progress


def result_of(job: JobRecord) -> Mapping[str, Any]:
    """The result of a job that has succeeded."""
    assert job.result is not None, job
    return job.result


def span_of(job: JobRecord) -> tuple[datetime, datetime]:
    """The start and the end of a job that has ended."""
    assert job.started_at is not None, job
    assert job.finished_at is not None, job
    return job.started_at, job.finished_at
