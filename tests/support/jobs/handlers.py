"""The kinds of job that tests enqueue.

Each attempt appends a line to a file when it starts. The effect of a job is a row of the table
``effects``, written in the final transaction, so it must be there exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import text

from app.bootstrap import register_jobs
from app.container import Container
from app.infra.db.database import Writer
from app.infra.errors import Unavailable
from app.jobs.records import JobRecord
from app.jobs.service import CommitHook, JobService, Progress
from modelkin.errors import InvalidParameter


def _begun(job: JobRecord) -> None:
    with Path(job.parameters["file"]).open("a") as file:
        file.write(f"{job.id} {job.attempts}\n")


def count(job: JobRecord, progress: Progress) -> CommitHook:
    """Count to ``steps`` with ``pause`` seconds for each, and leave one effect."""
    _begun(job)
    steps = job.parameters["steps"]
    for step in range(steps):
        progress(step, steps, "counting")
        time.sleep(job.parameters["pause"])
    progress(steps, steps, "counting")

    def finish(session: Writer) -> Mapping[str, Any]:
        session.execute(text("INSERT INTO effects (job) VALUES (:job)"), {"job": job.id})
        return {"counted": steps}

    return finish


def watch(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
    """Report progress until a file with the job's name exists."""
    _begun(job)
    seen = 0
    while not Path(job.parameters["file"]).with_name(job.id).exists():
        progress(seen := seen + 1, 0, "watching")
        time.sleep(0.05)
    return {"seen": seen}


def deaf(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
    """Sleep for ``pause`` seconds, without progress and without a check for cancellation."""
    del progress
    _begun(job)
    time.sleep(job.parameters["pause"])
    return {}


def wrong(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
    """Fail because of an error in the request."""
    progress(1, 3, "looking")
    _begun(job)
    raise InvalidParameter("there are no such leaves", field="leaves")


def buggy(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
    """Fail because of a bug."""
    del progress
    _begun(job)
    return {"quotient": 1 // 0}


def patient(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
    """Fail as if a store were unavailable, until the attempt ``until``."""
    del progress
    _begun(job)
    if job.attempts < job.parameters["until"]:
        raise Unavailable("the bucket store is away")
    return {"attempts": job.attempts}


def register(jobs: JobService) -> None:
    """Register the kinds of the tests."""
    for handler in (count, watch, deaf, wrong, buggy, patient):
        jobs.register(handler.__name__, handler)


def register_all(services: Container) -> None:
    """Register the kinds of the tests and those of the service."""
    register_jobs(services)
    register(services[JobService])
