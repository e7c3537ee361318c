"""The jobs of notifications."""

from __future__ import annotations

from app.jobs.service import JobService
from app.notifications.fan_out import EVERY, EventFanOut
from app.webhooks.outbox import KIND

__all__ = ["register_jobs"]


def register_jobs(jobs: JobService, fan_out: EventFanOut) -> None:
    """Register the fan-out of events, and the search for those whose job was lost."""
    jobs.register(KIND, fan_out.execute)
    jobs.every(EVERY, KIND, wanted=fan_out.any_late)
