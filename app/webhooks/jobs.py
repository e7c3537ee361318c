"""The jobs of webhooks."""

from __future__ import annotations

from app.jobs.service import JobService
from app.webhooks.delivery import JOB_KIND, RESUME_INTERVAL, DeliveryService

__all__ = ["register_jobs"]


def register_jobs(jobs: JobService, deliveries: DeliveryService) -> None:
    """Register the start of due deliveries: as a job, and as a periodic task of each worker."""
    jobs.register(JOB_KIND, deliveries.execute, queue="short")
    jobs.run_every(RESUME_INTERVAL, JOB_KIND, deliveries.resume)
