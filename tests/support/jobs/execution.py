"""Jobs that a test carries out itself, by a handler of its own and without a worker process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.infra.errors import Unavailable
from app.jobs.records import JobRecord
from app.jobs.service import JobService, Progress
from tests.support.jobs.claims import begin
from tests.support.jobs.deployment import Deployment
from workers.executor import JobExecutor

__all__ = ["Own", "away", "execute"]


class Own(JobService):
    """Knows one kind, which does what the test says."""

    def __init__(self, handler: Any) -> None:
        super().__init__()
        self.register("count", handler)


def execute(
    deployment: Deployment, job: JobRecord, handler: Any, worker: str = "w", **limits: Any
) -> JobRecord:
    """The job after ``handler`` has carried it out, unless its claim ended it."""
    claimed = begin(deployment, job, worker)
    if not claimed.finished:
        JobExecutor(deployment.database, Own(handler), **limits).execute(claimed)
    return deployment.show(job)


def away(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
    """Never finds its store."""
    raise Unavailable("Redis is away")
