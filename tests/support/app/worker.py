"""A worker that carries out jobs when the test asks, and a clock that the test advances."""

from __future__ import annotations

import secrets
import threading
from datetime import UTC, datetime

from sqlalchemy import or_, select, update

from app.container import Container
from app.infra.db.database import Database
from app.infra.db.tables.jobs import JobRow
from app.infra.db.tables.webhooks import EventRow, SubscriptionRow, WebhookDeliveryRow
from app.jobs import queue
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.tenancy.auth.records import Tenant
from app.webhooks.in_flight import THREAD
from tests.support.jobs.claims import claim
from workers.executor import JobExecutor
from workers.scheduler import Scheduler

__all__ = ["PAST", "AppWorker"]

PAST = datetime(2020, 1, 1, tzinfo=UTC)
_MAX_JOBS = 500
"""More than any test enqueues: jobs that enqueue each other end here."""


class AppWorker:
    """A registered worker that carries out jobs in the test's thread."""

    def __init__(self, services: Container) -> None:
        self._database = services[Database]
        self._jobs = services[JobService]
        self._tenant = services[Tenant]
        self._name = secrets.token_hex(4)
        self.executor = JobExecutor(self._database, self._jobs)
        with self._database.writing() as session:
            queue.add_worker(session, self._name, datetime.now(UTC))

    def job(self, job_id: str) -> JobRecord:
        """The current state of a job."""
        with self._database.reading() as session:
            return self._jobs.get(session, self._tenant, job_id)

    def execute(self, job: JobRecord) -> JobRecord:
        """Make one attempt at a job."""
        self._attempt(self.job(job.id))
        return self.job(job.id)

    def run_all(self, *, wait: bool = True) -> list[str]:
        """Carry out every due job and its follow-up jobs; return their kinds in order.

        Args:
            wait: also wait for the deliveries that they start.
        """
        done: list[str] = []
        while True:
            with self._database.reading() as session:
                due = or_(JobRow.not_before.is_(None), JobRow.not_before <= datetime.now(UTC))
                waiting = select(JobRow.id).where(JobRow.state == "queued", due)
                ready = session.scalars(waiting.order_by(JobRow.id)).all()
            if not ready:
                sending = [t for t in threading.enumerate() if t.name == THREAD]
                if not (sending and wait):
                    return done
                for thread in sending:
                    thread.join()
            for each in ready:
                with self._database.reading() as session:
                    job = self._jobs.find_all(session, [each])[each]
                self._attempt(job)
                done.append(job.kind)
            assert len(done) < _MAX_JOBS, done

    def _attempt(self, job: JobRecord) -> None:
        with self._database.writing() as session:
            claimed = claim(session, job, self._name)
        if claimed is not None and not claimed.finished:
            self.executor.execute(claimed)

    def tick(self, *, wait: bool = True) -> list[str]:
        """Enqueue the jobs that the service's schedule finds due, and carry them out."""
        Scheduler(self._database, self._jobs).tick(datetime.now(UTC))
        return self.run_all(wait=wait)

    def make_due(self) -> None:
        """Advance the time until all waiting jobs are due."""
        waiting = update(JobRow).where(JobRow.state == "queued").values(not_before=None)
        due = (
            update(WebhookDeliveryRow)
            .where(WebhookDeliveryRow.state == "pending")
            .values(due_at=PAST)
        )
        with self._database.writing() as session:
            for change in (waiting, due, update(SubscriptionRow).values(paused_until=None)):
                session.execute(change)

    def age_events(self) -> None:
        """Make all events and finished deliveries years old."""
        with self._database.writing() as session:
            session.execute(update(EventRow).values(created_at=PAST))
            ended = update(WebhookDeliveryRow).where(WebhookDeliveryRow.state != "pending")
            session.execute(ended.values(finished_at=PAST))
