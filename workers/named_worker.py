"""A worker under one name: from its registration to its shutdown or its lost lease.

The worker claims jobs that are due, or whose worker died, and carries them out. The table of jobs
is the only queue, so any worker may do so at any time.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from app.infra.db.database import Database
from app.infra.errors import Unavailable
from app.jobs import queue as work
from app.jobs.records import QueueName
from app.jobs.service import JobService
from app.settings import Settings
from workers.executor import JobExecutor
from workers.heartbeat import Heartbeat
from workers.pool import JobPool
from workers.scheduler import Scheduler

__all__ = ["NamedWorker"]

_REVIEW_INTERVAL_S = 10.0
"""Seconds between two searches for jobs that are this worker's by the table alone."""
_PRUNE_INTERVAL_S = 600.0
"""Seconds between two deletions of old jobs."""
_BATCH_SIZE = 500
_STARTUP_DELAY_S = 30.0
"""Seconds before the first periodic jobs and deletions, so that starting is cheap. Periodic tasks
run from the first step on: whoever begins with a service waits for verdicts on the first models."""
_STOP_TIMEOUT_S = 8.0
"""Seconds for the running jobs to stop."""

log = logging.getLogger(__name__)


class NamedWorker:
    """A worker under one name. Before the first job it writes nothing.

    Args:
        database: an open database, which stays open afterwards.
        jobs: the service with the handlers.
        alone: whether this worker holds an exclusive lock, so that no other worker is alive.
        nudge: called, in any thread, to request the next step at once.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        jobs: JobService,
        *,
        alone: bool,
        nudge: Callable[[], None],
    ) -> None:
        self.name = f"{socket.gethostname()[:30]}-{os.getpid()}-{secrets.token_hex(6)}"
        self._database = database
        self._queues = jobs.queues
        self._retention = timedelta(days=settings.job_retention_days)
        self.executor = JobExecutor(database, jobs, timeout=settings.job_timeout_seconds)
        self.pool = JobPool(self.executor.execute, settings.job_concurrency, nudge)
        self._scheduler = Scheduler(database, jobs)
        self._review_at = 0.0
        self._begin_at = self._prune_at = time.monotonic() + _STARTUP_DELAY_S
        self.heartbeat = Heartbeat(
            database, self.name, lease=settings.job_lease_seconds, alone=alone, on_silence=nudge
        )

    @property
    def lost(self) -> bool:
        """Whether another worker has removed this one, so that it must end."""
        return self.heartbeat.lost.is_set()

    def step(self) -> bool:
        """Begin one job, and do other due work; return whether there was a job to begin.

        Raises:
            Unavailable: the database cannot serve this now.
        """
        now, clock = datetime.now(UTC), time.monotonic()
        if clock >= self._begin_at:
            self._scheduler.enqueue_jobs(now)
        self._scheduler.run_tasks(now)
        if clock >= self._prune_at:
            self._prune(now)
            self._prune_at = clock + _PRUNE_INTERVAL_S
        with self._database.reading() as session:
            if not work.any_unfinished(session):
                return False
        self.register()
        return self._begin_job(now, clock)

    def register(self) -> None:
        """Register this worker, once: it takes jobs from now on.

        Raises:
            Unavailable: the database cannot serve this now.
        """
        self.heartbeat.start()

    def end(self) -> bool:
        """Queue the running jobs again, and unregister; return whether all jobs stopped in time."""
        self.executor.stopping.set()
        stopped = self.pool.wait(_STOP_TIMEOUT_S)
        self.heartbeat.stop()
        return stopped

    def _begin_job(self, now: datetime, clock: float) -> bool:
        """Claim a job for a free place, of a tenant at random among those that wait for one."""
        held = self.pool.held if clock >= self._review_at else None
        with self._database.reading() as session:
            available = work.available(session, self.name, now, held=held)
        places: dict[tuple[QueueName, int], list[str]] = {}
        for tenant_id, kind in available:
            places.setdefault((self._queues.get(kind, "jobs"), tenant_id), []).append(kind)
        if held is not None:
            self._review_at = clock + _REVIEW_INTERVAL_S
        if any(queue == "hubs" for queue, _ in places):  # backfills give way
            places = {place: kinds for place, kinds in places.items() if place[0] != "backfills"}
        free = [place for place in places if self.pool.has_place(*place)]
        for queue, tenant_id in secrets.SystemRandom().sample(free, len(free)):
            kinds = places[queue, tenant_id]
            try:
                with self._database.writing() as session:
                    job = work.claim(session, self.name, tenant_id, kinds, now, held=held)
            except Unavailable:
                self._review_at = 0.0  # the claim may have come about all the same
                raise
            if job is not None:
                if not job.finished:
                    self.pool.start(queue, job)
                return True
        return False

    def _prune(self, now: datetime) -> None:
        """Delete jobs that ended long ago."""
        while True:
            with self._database.writing() as session:
                if work.prune(session, now - self._retention, limit=_BATCH_SIZE) < _BATCH_SIZE:
                    return
