"""The jobs of webhooks."""

from __future__ import annotations

from app.jobs.service import JobService
from app.webhooks.delivery import EVERY, KIND, DeliveryService

__all__ = ["register_jobs"]


def register_jobs(jobs: JobService, deliveries: DeliveryService) -> None:
    """Register the start of due deliveries, by job and by every worker now and then."""
    jobs.register(KIND, deliveries.execute)
    jobs.look_every(EVERY, KIND, deliveries.resume)
