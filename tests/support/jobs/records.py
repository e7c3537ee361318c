"""Access to the optional parts of a job; each fails the test if the part is missing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.jobs.records import JobRecord

__all__ = ["error_of", "progress_of", "result_of", "span_of"]


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
