"""The jobs of merges."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from app.jobs.service import JobService
from app.merges.phases import DEADLINE
from app.merges.service import MergeService

__all__ = ["register_jobs"]

_CHECK_INTERVAL: Final = timedelta(minutes=1)
_CLEAN_UP: Final = "merges"


def register_jobs(jobs: JobService, merges: MergeService) -> None:
    """Register the deadlines of merges, and the deletion of old cells."""
    jobs.register(DEADLINE, merges.execute, queue="short")
    jobs.run_every(_CHECK_INTERVAL, _CLEAN_UP, merges.clean_up)
