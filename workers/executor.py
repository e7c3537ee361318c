"""One job from its beginning to its end, whatever happens in between.

Everything that becomes of a job is told to the database, by whoever holds it and by nobody else.
This module knows neither queues nor other workers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from app.errors import RetryLater, Unavailable
from app.infra.db.database import Database, Writer
from app.jobs import queue
from app.jobs.records import JobRecord
from app.jobs.service import CANCELLED, CommitHook, JobService
from modelkin.errors import JobCancelled, ModelkinError

__all__ = ["ATTEMPTS", "JobExecutor"]

T = TypeVar("T")

ATTEMPTS: Final = 5
"""Times that a job is begun, all in all, before what keeps it from its end is its error."""
_BACKOFF = (1.0, 5.0, 30.0, 120.0)
"""Seconds before it is begun again, after the first, second, ... time that a store was away."""
_PATIENCE = 3 * 86400.0
"""Seconds for which a job is begun again that waits for somebody else."""
_PACE = 0.4
"""Seconds between two records of progress."""
_RETRY = 0.5
"""Seconds between two tries to tell the database what became of a job."""
_LONGEST = 2000
"""Characters of an error that are kept."""

log = logging.getLogger(__name__)


class ShuttingDown(BaseException):
    """The worker is to stop: the job waits for another one. No handler's business to catch."""


class LeaseLost(BaseException):
    """Another worker has taken the job over: whatever is done here no longer counts."""


class JobExecutor:
    """Where the jobs of one worker are carried out, each in the thread that calls.

    Args:
        database: the truth.
        jobs: knows who carries out what.
        worker: the name of this worker, which no other ever has.
    """

    def __init__(self, database: Database, jobs: JobService, worker: str) -> None:
        self._database = database
        self._jobs = jobs
        self._worker = worker
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._at_work: set[tuple[str, int]] = set()
        self._idle = threading.Condition(self._lock)

    def carry_out(self, job_id: str, dispatch_no: int) -> None:
        """Do a job in its turn, and record what became of it; nothing if that is under way here."""
        with self._lock:
            if (job_id, dispatch_no) in self._at_work:
                return
            self._at_work.add((job_id, dispatch_no))
        try:
            self.attempt(job_id, dispatch_no)
        finally:
            with self._lock:
                self._at_work.remove((job_id, dispatch_no))
                self._idle.notify_all()

    def has(self, job_id: str, dispatch_no: int) -> bool:
        """Whether a job is carried out here in this turn, now."""
        with self._lock:
            return (job_id, dispatch_no) in self._at_work

    def stop(self, patience: float) -> bool:
        """Have every job put back at its next word of progress; whether all have been in time."""
        self._stopping.set()
        with self._lock:
            return self._idle.wait_for(lambda: not self._at_work, patience)

    def attempt(self, job_id: str, dispatch_no: int) -> None:
        """Make one attempt at a job, without a check that none is under way here."""
        job = self._told(lambda session: self._begin(session, job_id, dispatch_no))
        if job is None:
            return
        progress = _Progress(self._database, job, self._stopping)
        log.info("job %s (%s) begins, attempt %d", job.id, job.kind, job.attempts)
        try:
            outcome = self._jobs.handler(job.kind)(job, progress)
            self._succeed(job, outcome, progress.told)
        except JobCancelled:
            self._end(job, "cancelled", CANCELLED, progress.told)
        except ShuttingDown:
            log.info("job %s is put back: this worker stops", job.id)
            self._told(lambda s: queue.requeue(s, job, error=None, not_before=None, counts=False))
        except LeaseLost:
            log.warning("job %s was taken over by another worker", job.id)
        except RetryLater as error:
            self._wait(job, error, progress.told)
        except Unavailable as error:
            self._try_later(job, error, progress.told)
        except ModelkinError as error:
            self._end(job, "failed", _described(error.code, str(error)), progress.told)
        except Exception:
            log.exception("job %s (%s) failed by a bug", job.id, job.kind)
            detail = f"this is a bug in the service; its log has the details under job {job.id}"
            self._end(job, "failed", _described("internal_error", detail), progress.told)

    def _begin(self, session: Writer, job_id: str, dispatch_no: int) -> JobRecord | None:
        """The job, in the hands of this worker; None where there is nothing to do."""
        now = datetime.now(UTC)
        if self._stopping.is_set():
            queue.redispatch(session, queue.ReadyJob(job_id, dispatch_no, 0, None))
            return None
        begun = queue.begin(session, job_id, dispatch_no, self._worker, now)
        if begun is None:
            return None
        job, before = begun
        if before is not None:
            lost = f"worker {before} fell silent while it carried out this job"
            if job.attempts > ATTEMPTS:
                detail = f"{lost}, as others before it: {ATTEMPTS} attempts were made"
                queue.finish(session, job, "failed", now, error=_described("worker_lost", detail))
                return None
            queue.note_error(session, job, _described("worker_lost", f"{lost}: it was begun again"))
        if job.cancel_requested:
            queue.finish(session, job, "cancelled", now, error=CANCELLED)
            return None
        return job

    def _succeed(
        self,
        job: JobRecord,
        outcome: Mapping[str, Any] | CommitHook,
        told: Mapping[str, Any] | None,
    ) -> None:
        """Write the effects and the success together, or neither.

        The job's row comes last: others hold what the effects need, and enqueue under it.
        """
        with self._database.writing() as session:
            result = outcome if isinstance(outcome, Mapping) else outcome(session)
            now = datetime.now(UTC)
            if not queue.finish(session, job, "succeeded", now, progress=told, result=result):
                if queue.is_cancel_requested(session, job):
                    raise JobCancelled(f"job {job.id} was cancelled")
                raise LeaseLost
        log.info("job %s (%s) succeeded", job.id, job.kind)

    def _try_later(
        self, job: JobRecord, error: Unavailable, told: Mapping[str, Any] | None
    ) -> None:
        """A store was away: begin again after a while, unless that was tried often enough."""
        if job.attempts >= ATTEMPTS:
            detail = f"{error} (after {job.attempts} attempts)"
            self._end(job, "failed", _described(error.code, detail), told)
            return
        self._pause(job, error, _BACKOFF[min(job.attempts, len(_BACKOFF)) - 1], counts=True)

    def _wait(self, job: JobRecord, error: RetryLater, told: Mapping[str, Any] | None) -> None:
        """Begin again after as long as the job has waited already, within bounds."""
        now = datetime.now(UTC)
        waited = (now - (job.started_at or now)).total_seconds()
        if waited > _PATIENCE:
            detail = f"{error} (for {waited / 86400:.1f} days)"
            self._end(job, "failed", _described(error.code, detail), told)
            return
        pause = max(min(max(waited, _BACKOFF[0]), error.most), error.retry_after)
        self._pause(job, error, pause, counts=False)

    def _pause(self, job: JobRecord, error: Unavailable, seconds: float, *, counts: bool) -> None:
        log.warning("job %s (%s) waits %.0f s: %s", job.id, job.kind, seconds, error)
        described = _described(error.code, f"{error}; it is begun again after {seconds:.0f} s")
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        self._told(lambda s: queue.requeue(s, job, error=described, not_before=due, counts=counts))

    def _end(
        self,
        job: JobRecord,
        state: Any,
        error: Mapping[str, Any],
        told: Mapping[str, Any] | None,
    ) -> None:
        """Record an end without effects; a job that is being cancelled ends as cancelled."""

        def end(session: Writer) -> bool:
            ended, why = state, error
            if queue.is_cancel_requested(session, job):
                ended, why = "cancelled", CANCELLED
            return queue.finish(session, job, ended, datetime.now(UTC), progress=told, error=why)

        if self._told(end):
            log.info("job %s (%s) ends: %s", job.id, job.kind, error["code"])

    def _told(self, tell: Callable[[Writer], T]) -> T | None:
        """What a change of the database answers, as soon as it serves; None if it never does.

        Then the job stays in the hands of a worker that is gone, until others see that.
        """
        while True:
            try:
                with self._database.writing() as session:
                    return tell(session)
            except Unavailable as error:
                log.warning("what became of a job cannot be recorded now: %s", error)
                if self._stopping.wait(_RETRY):
                    return None


class _Progress:
    """Tells the database how far a job is, now and then, and the handler when to stop.

    Args:
        job: as it was begun here.
        stopping: the worker is to stop.
    """

    def __init__(self, database: Database, job: JobRecord, stopping: threading.Event) -> None:
        self._database = database
        self._job = job
        self._stopping = stopping
        self._next = 0.0
        self.told: dict[str, Any] | None = None
        """What the handler said last."""

    def __call__(self, done: int, total: int, stage: str = "") -> None:
        if self._stopping.is_set():
            raise ShuttingDown
        staged = self.told is None or self.told["stage"] != stage
        self.told = {"done": int(done), "total": int(total), "stage": stage}
        if time.monotonic() < self._next and not staged:
            return
        self._next = time.monotonic() + _PACE
        try:
            with self._database.writing() as session:
                cancelling = queue.note_progress(session, self._job, self.told)
        except Unavailable as error:
            log.info("the progress of job %s is not recorded now: %s", self._job.id, error)
            return
        if cancelling is None:
            raise LeaseLost
        if cancelling:
            raise JobCancelled(f"job {self._job.id} was cancelled")


def _described(code: str, detail: str) -> dict[str, str]:
    """An error as problem documents have it."""
    return {"code": code, "detail": detail[:_LONGEST]}
