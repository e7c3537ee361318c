"""The jobs of anatomies: making those that are due."""

from __future__ import annotations

from app.anatomy.keeping import CHECK_INTERVAL, JOB_KIND, AnatomyKeeper
from app.jobs.service import JobService

__all__ = ["register_jobs"]


def register_jobs(jobs: JobService, keeper: AnatomyKeeper) -> None:
    """Register the jobs that make due anatomies, and the check for those whose job was lost."""
    jobs.register(JOB_KIND, keeper.execute, queue="short")
    jobs.enqueue_every(CHECK_INTERVAL, JOB_KIND, wanted=keeper.any_overdue)
