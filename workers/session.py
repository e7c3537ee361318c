"""One life of a worker: under one name, until it stops, or rests, or others take it for dead.

What waits in the database is handed to the queue, what the queue gives is carried out, and what
became nothing, because somebody died in between, is offered again. Every step may be repeated, by
any worker at any time: the queue knows a turn by its name, and a job knows who holds it.
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
from workers.dbos_queue import DbosQueue, State
from workers.executor import JobExecutor
from workers.heartbeat import Heartbeat
from workers.scheduler import Scheduler

__all__ = ["WorkerSession"]

_EACH = 100
"""Turns of one tenant that wait in the queue; further ones wait in the database."""
_REVIEW = 10.0
"""Seconds between looks for turns that came to nothing."""
_TIDY = 600.0
"""Seconds between clearings away of what has ended long ago."""
_TRACE = timedelta(hours=1)
"""How long the queue remembers a turn that has ended."""
_AT_ONCE = 500
_BEGIN = 30.0
"""Seconds of a life before its first periodic jobs and clearings, so that starting is cheap."""
_REST = 60.0
"""Seconds without any job after which a connection to the queue is no longer worth its polling."""
_PATIENCE = 8.0
"""Seconds that jobs under way have to hear that their worker stops, and then the queue."""

log = logging.getLogger(__name__)


class WorkerSession:
    """A worker under one name. It costs next to nothing until there is a job.

    Args:
        settings: of the service.
        database: open, and left open.
        jobs: with the kinds that it carries out.
        alone: no other worker can live, because this one holds what only one can.
        nudge: called, in any thread, when there is something to do at once.
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
        self._apart = jobs.apart
        self._database = database
        self.executor = JobExecutor(database, jobs, self.name)
        self._schedule = Scheduler(database, jobs)
        self._durable: DbosQueue | None = None
        self._nudge = nudge
        self._review_now = threading.Event()
        self._review_at = 0.0
        self._idle_since: dict[work.ReadyJob, float] = {}
        self._begin_at = self._tidy_at = time.monotonic() + _BEGIN
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
        """Whether others took this worker for dead: then this life is over."""
        return self.heartbeat.lost.is_set()

    @property
    def tired(self) -> bool:
        """Whether it has been connected for nothing for a while."""
        return self._durable is not None and time.monotonic() - self._busy_at > _REST

    def step(self) -> bool:
        """Do what there is to do; whether there was anything.

        Raises:
            Unavailable: the database or the queue cannot serve this now.
        """
        now, clock = datetime.now(UTC), time.monotonic()
        if clock >= self._begin_at:
            self._schedule.tick(now)
        if clock >= self._tidy_at:
            self._tidy(now)
            self._tidy_at = clock + _TIDY
        if self._anything():
            self._busy_at = clock
        elif self._durable is None:
            return False
        queue = self.connect()
        if clock >= self._review_at or self._review_now.is_set():
            self._review_now.clear()
            self._review(queue, clock)
            self._review_at = clock + _REVIEW
        return self._hand_over(queue, now)

    def connect(self) -> DbosQueue:
        """The queue, opened when it is first asked for; from then on this worker is known.

        Raises:
            Unavailable: the database or the queue cannot serve this now.
        """
        if self._durable is None:
            self.heartbeat.start()
            self._durable = DbosQueue(
                self._database.url,
                self.name,
                self.executor.carry_out,
                concurrency=self._settings.job_concurrency,
                apart=self._apart,
                migrate=self._settings.migrate,
            )
            log.info("worker %s takes jobs", self.name)
        return self._durable

    def end(self) -> bool:
        """Put back what is under way, and be known no more; whether all of it heard in time."""
        heard = self.executor.stop(_PATIENCE)
        if self._durable is not None:
            heard &= self._durable.close(_PATIENCE)
        self.heartbeat.stop()
        return heard

    def _anything(self) -> bool:
        with self._database.reading() as session:
            return work.any_unfinished(session)

    def _hand_over(self, queue: DbosQueue, now: datetime) -> bool:
        """From the database into the queue, where it may lie already."""
        with self._database.reading() as session:
            offers = work.ready_jobs(session, now, each=_EACH, apart=self._apart)
        for offer in offers:
            queue.hand_over(offer)
        if offers:
            with self._database.writing() as session:
                work.mark_dispatched(session, offers)
        return bool(offers)

    def _review(self, queue: DbosQueue, clock: float) -> None:
        """See to the turns that will not end by themselves."""
        with self._database.reading() as session:
            handed = work.dispatched_jobs(session)
        states = queue.states(handed)
        living = self.heartbeat.living()
        dropped = self._dropped(states, clock)
        for offer, state in states.items():
            going = None if state is None or state.ended else state
            holder = offer.worker if going is None else going.worker
            if holder in living and offer not in dropped:
                continue
            if going is None:
                # Its job would have ended, too, had it come to anything: unless that was just now.
                with self._database.writing() as session:
                    work.redispatch(session, offer)
            elif holder is not None:
                queue.take_back(offer)

    def _dropped(
        self, states: Mapping[work.ReadyJob, State | None], clock: float
    ) -> set[work.ReadyJob]:
        """The turns that this worker took, as others see it, and has not had under way for long.

        It claimed one and could not read it, or never heard that it had taken the job.
        """
        idle = {
            offer
            for offer, state in states.items()
            if self.name in (offer.worker, state and state.worker)
            and not self.executor.has(offer.job_id, offer.dispatch_no)
        }
        self._idle_since = {offer: self._idle_since.get(offer, clock) for offer in idle}
        return {offer for offer, since in self._idle_since.items() if clock - since >= _REVIEW}

    def _tidy(self, now: datetime) -> None:
        """Forget jobs that ended long ago, and what the queue remembers of them sooner."""
        before = now - timedelta(days=self._settings.job_retention_days)
        while True:
            with self._database.writing() as session:
                if work.prune(session, before, limit=_AT_ONCE) < _AT_ONCE:
                    break
        if self._durable is not None:
            self._durable.forget(_TRACE)

    def _on_silence(self) -> None:
        self._review_now.set()
        self._nudge()
