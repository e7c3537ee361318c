"""The maintenance jobs of a space: rebuild its buckets, make its stop-list.

This module only connects jobs to the services that do the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.errors import SpaceNotFound
from app.index.buckets.service import BucketService
from app.infra.db.database import Database
from app.jobs.records import JobRecord
from app.jobs.service import JobService, Progress
from app.maintenance.stop_lists import StopListService
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord

__all__ = ["REBUILD_BUCKETS", "STOP_LIST", "MaintenanceJobs", "register_jobs"]

REBUILD_BUCKETS: Final = "rebuild_buckets"
STOP_LIST: Final = "stop_list"


def register_jobs(jobs: JobService, maintenance: MaintenanceJobs) -> None:
    """Register the jobs of these kinds."""
    jobs.register(REBUILD_BUCKETS, maintenance.rebuild_buckets)
    jobs.register(STOP_LIST, maintenance.find_stop_list)


class MaintenanceJobs:
    """The handlers of the maintenance jobs.

    Args:
        database: read from.
        buckets: rebuilt.
        stop_lists: makes them.
    """

    def __init__(
        self, database: Database, buckets: BucketService, stop_lists: StopListService
    ) -> None:
        self._database = database
        self._buckets = buckets
        self._stop_lists = stop_lists

    def rebuild_buckets(self, job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        """Carry out a job of the kind ``REBUILD_BUCKETS``."""
        space = self._space(job)
        self._buckets.rebuild(space, progress)
        return {"models": space.models, "bands": space.banding.bands, "rows": space.banding.rows}

    def find_stop_list(self, job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        """Carry out a job of the kind ``STOP_LIST``."""
        share = float(job.parameters["share"])
        made = self._stop_lists.make(self._space(job), share=share, progress=progress)
        if made is None:
            return {"stop_list": None}
        summary = {"version": made.version, "size": made.size, "models": made.models}
        return {"stop_list": {**summary, "share": made.share}}

    def _space(self, job: JobRecord) -> SpaceRecord:
        """The present state of the job's space."""
        assert job.space_id is not None
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, job.space_id)
        if space is None:
            raise SpaceNotFound(f"space {job.space!r} was deleted")
        return space
