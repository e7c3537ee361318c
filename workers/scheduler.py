"""``Scheduler``: enqueues periodic jobs, and runs periodic tasks.

Time is divided into slots as long as the period. The id of a job follows from its slot, so each
slot has one job, however many workers run. A slot in which no worker ran has none. Each worker also
runs every periodic task once in its slot, without a job.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from app.infra.db.database import Database
from app.infra.errors import Unavailable, explain
from app.jobs.service import SERVICE, JobService, PeriodicJob, PeriodicTask
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.tenants import ensure_tenant

__all__ = ["SERVICE", "Scheduler"]

log = logging.getLogger(__name__)


class Scheduler:
    """Enqueues due periodic jobs and runs due periodic tasks.

    Args:
        jobs: the service with the periodic jobs and tasks.
    """

    def __init__(self, database: Database, jobs: JobService) -> None:
        self._database = database
        self._jobs = jobs
        self._job_slots: dict[str, datetime] = {}
        self._task_slots: dict[str, datetime] = {}
        self._tenant: Tenant | None = None

    def tick(self, now: datetime) -> None:
        """Enqueue each due job, and run each due task."""
        self.enqueue_jobs(now)
        self.run_tasks(now)

    def enqueue_jobs(self, now: datetime) -> None:
        """Enqueue each due job, unless its predecessor is unfinished."""
        for periodic in self._jobs.periodic:
            slot = slot_of(now, periodic.every)
            if self._job_slots.get(periodic.kind) != slot:
                if self._is_wanted(periodic):
                    self._enqueue(periodic, slot)
                self._job_slots[periodic.kind] = slot

    def run_tasks(self, now: datetime) -> None:
        """Run each due task."""
        for task in self._jobs.periodic_tasks:
            slot = slot_of(now, task.every)
            if self._task_slots.get(task.name) != slot:
                self._task_slots[task.name] = slot
                _run(task)

    def _is_wanted(self, periodic: PeriodicJob) -> bool:
        with self._database.reading() as session:
            return periodic.wanted(session)

    def _enqueue(self, periodic: PeriodicJob, slot: datetime) -> None:
        with self._database.writing() as session:
            tenant = self._tenant or ensure_tenant(session, SERVICE)
            self._jobs.enqueue(
                session, tenant, periodic.kind, periodic.parameters, dedup_key=SERVICE, slot=slot
            )
        self._tenant = tenant


def _run(task: PeriodicTask) -> None:
    """Run a periodic task; never raise."""
    try:
        task.run()
    except Unavailable as error:
        log.warning("the periodic task %s failed: %s", task.name, explain(error))
    except Exception:
        log.exception("the periodic task %s failed, because of a bug", task.name)


def slot_of(now: datetime, period: timedelta) -> datetime:
    """The start of the slot that contains ``now``; the same for every worker."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + period * ((now - epoch) // period)
