"""The jobs of the catalog: counting the indices of old supports by tensor."""

from __future__ import annotations

from datetime import timedelta

from app.jobs.service import JobService
from app.models.catalog.tensor_counts import JOB_KIND, TensorCountService

__all__ = ["register_jobs"]

_INTERVAL = timedelta(hours=1)


def register_jobs(jobs: JobService, counts: TensorCountService) -> None:
    """Register the count, and have it begin by itself while supports without counts are stored."""
    jobs.register(JOB_KIND, lambda _, progress: counts.count_missing(progress))
    jobs.enqueue_every(_INTERVAL, JOB_KIND, wanted=counts.any_missing)
