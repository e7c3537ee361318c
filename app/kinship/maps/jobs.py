"""The jobs of maps."""

from __future__ import annotations

from app.jobs.service import JobService
from app.kinship.maps.service import JOB_KIND, MapService

__all__ = ["register_jobs"]


def register_jobs(jobs: JobService, maps: MapService) -> None:
    """Register the drawing of a map."""
    jobs.register(JOB_KIND, maps.execute)
