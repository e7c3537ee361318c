"""The jobs of findings."""

from __future__ import annotations

from app.jobs.service import JobService
from app.kinship.findings.keeping import CHECK_INTERVAL, NAME, FindingKeeper
from app.kinship.findings.records import JOB_KIND

__all__ = ["register_jobs"]


def register_jobs(jobs: JobService, keeper: FindingKeeper) -> None:
    """Register the judging of models, and the check for spaces with something to judge."""
    jobs.register(JOB_KIND, keeper.execute, queue="short")
    jobs.run_every(CHECK_INTERVAL, NAME, keeper.enqueue_due)
