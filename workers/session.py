"""One registration of a worker: from start to shutdown, idle exit or lost lease.

A session moves due jobs from the database to the queue and carries out those that the queue gives
it. It also dispatches the jobs of dead workers again. Any worker may repeat each step at any time:
the queue knows a dispatch by its name, and a job knows its worker.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from app.infra.db.database import Database
from app.jobs import queue as work
from app.jobs.service import JobService
from app.settings import Settings
from workers.dbos_queue import DbosQueue, DispatchState
from workers.executor import JobExecutor
from workers.heartbeat import Heartbeat
from workers.scheduler import Scheduler

__all__ = ["WorkerSession"]

_MAX_QUEUED_PER_TENANT = 100
"""Dispatched jobs of one tenant that wait in a queue; further ones wait in the database."""
_REVIEW_INTERVAL_S = 10.0
"""Seconds between two searches for lost dispatches."""
_PRUNE_INTERVAL_S = 600.0
"""Seconds between two deletions of old jobs."""
_DISPATCH_RETENTION = timedelta(hours=1)
"""How long the queue keeps a finished dispatch."""
_BATCH_SIZE = 500
_STARTUP_DELAY_S = 30.0
"""Seconds before the first periodic jobs and deletions, so that starting is cheap."""
_IDLE_TIMEOUT_S = 10.0
"""Seconds without a job after which the session closes, since an open queue polls; to open it again
takes less processor time than three seconds of that.
"""
_STOP_TIMEOUT_S = 8.0
"""Seconds for the running jobs to stop, and then for the queue to close."""

log = logging.getLogger(__name__)


class WorkerSession:
    """A worker under one name. Before the first job it costs next to nothing.

    Args:
        settings: of the service.
        database: open; stays open afterwards.
        jobs: has the handlers.
        alone: this worker holds an exclusive lock, so no other worker is alive.
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
        self._settings = settings
        self._queues = jobs.queues
        self._database = database
        self.executor = JobExecutor(database, jobs, self.name, timeout=settings.job_timeout_seconds)
        self._scheduler = Scheduler(database, jobs)
        self._queue: DbosQueue | None = None
        self._nudge = nudge
        self._review_now = threading.Event()
        self._review_at = 0.0
        self._idle_since: dict[work.Dispatch, float] = {}
        self._begin_at = self._prune_at = time.monotonic() + _STARTUP_DELAY_S
        self._busy_at = time.monotonic()
        self.heartbeat = Heartbeat(
            database,
            self.name,
            lease=settings.job_lease_seconds,
            alone=alone,
            on_silence=self._on_silence,
        )

    @property
    def lost(self) -> bool:
        """Whether another worker has removed this one, so that the session must end."""
        return self.heartbeat.lost.is_set()

    @property
    def idle(self) -> bool:
        """Whether the session has an open queue, but has had no job for a while."""
        return self._queue is not None and time.monotonic() - self._busy_at > _IDLE_TIMEOUT_S

    def step(self) -> bool:
        """Dispatch due jobs, and do what else is due; whether there was a job to dispatch.

        Raises:
            Unavailable: the database or the queue cannot serve this now.
        """
        now, clock = datetime.now(UTC), time.monotonic()
        if clock >= self._begin_at:
            self._scheduler.tick(now)
        if clock >= self._prune_at:
            self._prune(now)
            self._prune_at = clock + _PRUNE_INTERVAL_S
        if self._any_unfinished():
            self._busy_at = clock
        elif self._queue is None:
            return False
        queue = self.connect()
        if clock >= self._review_at or self._review_now.is_set():
            self._review_now.clear()
            self._review(queue, clock)
            self._review_at = clock + _REVIEW_INTERVAL_S
        return self._dispatch(queue, now)

    def connect(self) -> DbosQueue:
        """The queue, opened on first use; then this worker is registered, too.

        Raises:
            Unavailable: the database or the queue cannot serve this now.
        """
        if self._queue is None:
            self.heartbeat.start()
            queue = DbosQueue(
                self._database.url,
                self.name,
                self.executor.execute,
                concurrency=self._settings.job_concurrency,
                queues=self._queues,
                migrate=self._settings.migrate,
            )
            queue.start()
            self._queue = queue
            log.info("worker %s takes jobs", self.name)
        return self._queue

    def end(self) -> bool:
        """Queue the running jobs again, and unregister; whether all of them stopped in time."""
        stopped = self.executor.stop(_STOP_TIMEOUT_S)
        if self._queue is not None:
            stopped &= self._queue.close(_STOP_TIMEOUT_S)
        self.heartbeat.stop()
        return stopped

    def _any_unfinished(self) -> bool:
        with self._database.reading() as session:
            return work.any_unfinished(session)

    def _dispatch(self, queue: DbosQueue, now: datetime) -> bool:
        """Enqueue the due jobs of the database; some may be in the queue already."""
        with self._database.reading() as session:
            ready = work.ready_dispatches(
                session, now, per_tenant=_MAX_QUEUED_PER_TENANT, queues=self._queues
            )
        for dispatch in ready:
            queue.enqueue(dispatch)
        if ready:
            with self._database.writing() as session:
                work.mark_dispatched(session, ready)
        return bool(ready)

    def _review(self, queue: DbosQueue, clock: float) -> None:
        """Dispatch jobs again whose dispatch was lost or whose worker died."""
        with self._database.reading() as session:
            unfinished = work.unfinished_dispatches(session)
        states = queue.states(unfinished)
        living = self.heartbeat.live_workers()
        dropped = self._dropped(states, clock)
        for dispatch, state in states.items():
            going = None if state is None or state.ended else state
            holder = dispatch.worker if going is None else going.worker
            if holder in living and dispatch not in dropped:
                continue
            if going is None:
                # The dispatch has ended, but its job has not: it was lost, or it ended just now.
                with self._database.writing() as session:
                    work.redispatch(session, dispatch)
            elif holder is not None:
                queue.enqueue_again(dispatch)

    def _dropped(
        self, states: Mapping[work.Dispatch, DispatchState | None], clock: float
    ) -> set[work.Dispatch]:
        """The dispatches recorded as this worker's that it has not run for a while.

        The worker failed after the queue's claim, or lost the answer to its claim of the job.
        """
        idle = {
            dispatch
            for dispatch, state in states.items()
            if self.name in (dispatch.worker, state and state.worker)
            and not self.executor.has(dispatch.job_id, dispatch.dispatch_no)
        }
        self._idle_since = {dispatch: self._idle_since.get(dispatch, clock) for dispatch in idle}
        return {
            dispatch
            for dispatch, since in self._idle_since.items()
            if clock - since >= _REVIEW_INTERVAL_S
        }

    def _prune(self, now: datetime) -> None:
        """Delete jobs that ended long ago, and the queue's finished dispatches sooner."""
        before = now - timedelta(days=self._settings.job_retention_days)
        while True:
            with self._database.writing() as session:
                if work.prune(session, before, limit=_BATCH_SIZE) < _BATCH_SIZE:
                    break
        if self._queue is not None:
            self._queue.prune(_DISPATCH_RETENTION)

    def _on_silence(self) -> None:
        self._review_now.set()
        self._nudge()
