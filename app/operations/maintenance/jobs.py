"""The maintenance jobs of a space: rebuild its buckets.

This module only connects jobs to the services that do the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.infra.db.database import Database
from app.infra.errors import SpaceNotFound
from app.jobs.records import JobRecord
from app.jobs.service import JobService, Progress
from app.models.index.buckets.service import BucketService
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces

__all__ = ["REBUILD_BUCKETS", "MaintenanceJobs", "register_jobs"]

REBUILD_BUCKETS: Final = "rebuild_buckets"


def register_jobs(jobs: JobService, maintenance: MaintenanceJobs) -> None:
    """Register the jobs of maintenance."""
    jobs.register(REBUILD_BUCKETS, maintenance.rebuild_buckets)


class MaintenanceJobs:
    """The handlers of the maintenance jobs.

    Args:
        database: the database to read from.
        buckets: rebuilt.
    """

    def __init__(self, database: Database, buckets: BucketService) -> None:
        self._database = database
        self._buckets = buckets

    def rebuild_buckets(self, job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        """Carry out a job of the kind ``REBUILD_BUCKETS``."""
        space = self._space(job)
        self._buckets.rebuild(space, progress)
        return {"models": space.models, "bands": space.banding.bands, "rows": space.banding.rows}

    def _space(self, job: JobRecord) -> SpaceRecord:
        """The present state of the job's space."""
        assert job.space_id is not None
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, job.space_id)
        if space is None:
            raise SpaceNotFound(f"space {job.space!r} was deleted")
        return space
