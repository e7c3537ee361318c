"""The jobs of notifications."""

from __future__ import annotations

from app.jobs.service import JobService
from app.kinship.notifications.fan_out import CHECK_INTERVAL, EventFanOut
from app.webhooks.outbox import JOB_KIND

__all__ = ["register_jobs"]


def register_jobs(jobs: JobService, fan_out: EventFanOut) -> None:
    """Register the fan-out of events, and the check for events whose job was lost."""
    jobs.register(JOB_KIND, fan_out.execute, queue="short")
    jobs.enqueue_every(CHECK_INTERVAL, JOB_KIND, wanted=fan_out.any_overdue)
