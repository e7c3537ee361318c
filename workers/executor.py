"""``JobExecutor``: carries out one job, from its claim to the record of its end.

Only the worker that holds the claim of a job writes its state to the database.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from weakref import WeakSet

from app.errors import JobTimeout, RetryLater, Unavailable, explain
from app.infra.db.database import Database, Writer
from app.infra.db.visibility import every_tenant, one_tenant
from app.jobs import queue
from app.jobs.records import JobRecord
from app.jobs.service import CANCELLED, SERVICE, CommitHook, JobService, Unfinished
from modelkin.errors import JobCancelled, ModelkinError

__all__ = ["MAX_ATTEMPTS", "JobExecutor"]

T = TypeVar("T")

MAX_ATTEMPTS: Final = 5
"""Attempts at a job before its last error fails it."""
_BACKOFF_S = (1.0, 5.0, 30.0, 120.0)
"""Seconds before the next attempt, after the first, second, ... with an unavailable store."""
_MAX_WAIT_S = 3 * 86400.0
"""Seconds for which a job is retried whose handler raises ``RetryLater``."""
_PROGRESS_INTERVAL_S = 0.4
"""Seconds between two records of a job's progress."""
_WRITE_RETRY_S = 0.5
"""Seconds between two attempts to write a job's state."""
_MAX_ERROR_LENGTH = 2000
"""Characters of an error that are kept."""

log = logging.getLogger(__name__)


class ShuttingDown(BaseException):
    """The worker is stopping: the job is queued again. Handlers must not catch it."""


class LeaseLost(BaseException):
    """Another worker has taken the job over: this attempt has no effect."""


class JobExecutor:
    """Carries out the jobs of one worker, each in the thread that calls.

    Args:
        database: the database of the jobs.
        jobs: has the handlers.
        worker: the unique name of this worker.
        timeout: seconds that an attempt may take; jobs that wait for hubs have limits of their own.
    """

    def __init__(
        self, database: Database, jobs: JobService, worker: str, *, timeout: float = math.inf
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._worker = worker
        self._timeout = timeout
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._at_work: set[tuple[str, int]] = set()
        self._idle = threading.Condition(self._lock)
        self.threads: WeakSet[threading.Thread] = WeakSet()
        """The queue's threads that have called :meth:`execute`."""

    def execute(self, job_id: str, dispatch_no: int) -> None:
        """Carry out a dispatch of a job, and record its end; nothing if it is running here."""
        with self._lock:
            if (job_id, dispatch_no) in self._at_work:
                return
            self._at_work.add((job_id, dispatch_no))
            self.threads.add(threading.current_thread())
        try:
            self.attempt(job_id, dispatch_no)
        finally:
            with self._lock:
                self._at_work.remove((job_id, dispatch_no))
                self._idle.notify_all()

    def has(self, job_id: str, dispatch_no: int) -> bool:
        """Whether this dispatch of a job is running here."""
        with self._lock:
            return (job_id, dispatch_no) in self._at_work

    def stop(self, timeout: float) -> bool:
        """Queue every job again at its next report of progress; whether all were in time."""
        self._stopping.set()
        with self._lock:
            return self._idle.wait_for(lambda: not self._at_work, timeout)

    def attempt(self, job_id: str, dispatch_no: int) -> None:
        """Make one attempt at a job, without a check that none is under way here."""
        job = self._write(lambda session: self._begin(session, job_id, dispatch_no))
        if job is None:
            return
        timeout = math.inf if self._jobs.queues.get(job.kind) == "hubs" else self._timeout
        progress = _Progress(self._database, job, self._stopping, timeout)
        log.info("job %s (%s) begins, attempt %d", job.id, job.kind, job.attempts)
        try:
            with _showing(job):
                outcome = self._jobs.handler(job.kind)(job, progress)
                self._succeed(job, outcome, progress.last)
        except JobCancelled:
            self._end(job, "cancelled", CANCELLED, progress.last)
        except ShuttingDown:
            log.info("job %s is queued again: this worker stops", job.id)
            self._queue_again(job)
        except Unfinished:
            self._queue_again(job)
        except LeaseLost:
            log.warning("job %s was taken over by another worker", job.id)
        except RetryLater as error:
            self._wait(job, error, progress.last)
        except Unavailable as error:
            self._try_later(job, error, progress.last)
        except ModelkinError as error:
            self._end(job, "failed", _described(error.code, str(error)), progress.last)
        except Exception:
            log.exception("job %s (%s) failed by a bug", job.id, job.kind)
            detail = f"this is a bug in the service; its log has the details under job {job.id}"
            self._end(job, "failed", _described("internal_error", detail), progress.last)

    def _queue_again(self, job: JobRecord) -> None:
        self._write(lambda s: queue.requeue(s, job, error=None, not_before=None, counts=False))

    def _begin(self, session: Writer, job_id: str, dispatch_no: int) -> JobRecord | None:
        """Claim a job; None if it is not available or has ended."""
        now = datetime.now(UTC)
        if self._stopping.is_set():
            queue.redispatch(session, queue.Dispatch(job_id, dispatch_no, 0, None))
            return None
        begun = queue.claim(session, job_id, dispatch_no, self._worker, now)
        if begun is None:
            return None
        job, before = begun
        if before is not None:
            log.warning("worker %s died while it carried out job %s", before, job.id)
            lost = "its worker died while it carried out this job"
            if job.attempts > MAX_ATTEMPTS:
                detail = f"{lost}, as others before it: {MAX_ATTEMPTS} attempts were made"
                queue.finish(session, job, "failed", now, error=_described("worker_lost", detail))
                return None
            queue.record_error(
                session, job, _described("worker_lost", f"{lost}: it was started again")
            )
        if job.cancel_requested:
            queue.finish(session, job, "cancelled", now, error=CANCELLED)
            return None
        return job

    def _succeed(
        self,
        job: JobRecord,
        outcome: Mapping[str, Any] | CommitHook,
        progress: Mapping[str, Any] | None,
    ) -> None:
        """Write the effects and the success in one transaction.

        The job's row is locked last: a holder of the other locks may enqueue a job meanwhile.
        """
        with self._database.writing() as session:
            result = outcome if isinstance(outcome, Mapping) else outcome(session)
            now = datetime.now(UTC)
            if not queue.finish(session, job, "succeeded", now, progress=progress, result=result):
                if queue.is_cancel_requested(session, job):
                    raise JobCancelled(f"job {job.id} was cancelled")
                raise LeaseLost
        log.info("job %s (%s) succeeded", job.id, job.kind)

    def _try_later(
        self, job: JobRecord, error: Unavailable, progress: Mapping[str, Any] | None
    ) -> None:
        """Retry a job after an unavailable store, up to the limit of attempts."""
        if job.attempts >= MAX_ATTEMPTS:
            detail = f"{error} (after {job.attempts} attempts)"
            self._end(job, "failed", _described(error.code, detail), progress)
            return
        self._pause(job, error, _BACKOFF_S[min(job.attempts, len(_BACKOFF_S)) - 1], counts=True)

    def _wait(self, job: JobRecord, error: RetryLater, progress: Mapping[str, Any] | None) -> None:
        """Retry a job later; each pause doubles the total wait, within bounds."""
        now = datetime.now(UTC)
        waited = (now - (job.started_at or now)).total_seconds()
        if waited > _MAX_WAIT_S:
            detail = f"{error} (for {waited / 86400:.1f} days)"
            self._end(job, "failed", _described(error.code, detail), progress)
            return
        pause = max(min(max(waited, _BACKOFF_S[0]), error.most), error.retry_after)
        self._pause(job, error, pause, counts=False)

    def _pause(self, job: JobRecord, error: Unavailable, seconds: float, *, counts: bool) -> None:
        log.warning("job %s (%s) waits %.0f s: %s", job.id, job.kind, seconds, explain(error))
        described = _described(error.code, f"{error}; the next attempt is in {seconds:.0f} s")
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        self._write(lambda s: queue.requeue(s, job, error=described, not_before=due, counts=counts))

    def _end(
        self,
        job: JobRecord,
        state: Any,
        error: Mapping[str, Any],
        progress: Mapping[str, Any] | None,
    ) -> None:
        """Record an end without effects; a job that is being cancelled ends as cancelled."""

        def end(session: Writer) -> bool:
            ended, why = state, error
            if queue.is_cancel_requested(session, job):
                ended, why = "cancelled", CANCELLED
            return queue.finish(
                session, job, ended, datetime.now(UTC), progress=progress, error=why
            )

        if self._write(end):
            log.info("job %s (%s) ends: %s", job.id, job.kind, error["code"])

    def _write(self, change: Callable[[Writer], T]) -> T | None:
        """Write to the database, retrying while it is unavailable; None if the worker stops first.

        Then the job keeps the claim of a dead worker, until another worker takes it over.
        """
        while True:
            try:
                with self._database.writing() as session:
                    return change(session)
            except Unavailable as error:
                log.warning("the state of a job cannot be recorded now: %s", explain(error))
                if self._stopping.wait(_WRITE_RETRY_S):
                    return None


class _Progress:
    """Records the progress of a job, and stops its handler by an exception.

    Args:
        job: with the claim of this worker.
        stopping: set when the worker stops.
        timeout: seconds from now after which the handler is stopped.
    """

    def __init__(
        self, database: Database, job: JobRecord, stopping: threading.Event, timeout: float
    ) -> None:
        self._database = database
        self._job = job
        self._stopping = stopping
        self._timeout = timeout
        self._began = time.monotonic()
        self._next = 0.0
        self.last: dict[str, Any] | None = None
        """The handler's last report."""

    def __call__(self, done: int, total: int, stage: str = "") -> None:
        if self._stopping.is_set():
            raise ShuttingDown
        staged = self.last is None or self.last["stage"] != stage
        self.last = {"done": int(done), "total": int(total), "stage": stage}
        now = time.monotonic()
        if now - self._began > self._timeout:
            raise JobTimeout(_timed_out(self._timeout, self.last))
        if now < self._next and not staged:
            return
        self._next = now + _PROGRESS_INTERVAL_S
        try:
            with self._database.writing() as session:
                cancelling = queue.record_progress(session, self._job, self.last)
        except Unavailable as error:
            log.info("the progress of job %s is not recorded now: %s", self._job.id, explain(error))
            return
        if cancelling is None:
            raise LeaseLost
        if cancelling:
            raise JobCancelled(f"job {self._job.id} was cancelled")


def _timed_out(timeout: float, progress: Mapping[str, Any]) -> str:
    """The message of a job that took too long: how far it came, and what to do."""
    total = f" of {progress['total']}" if progress["total"] else ""
    return (
        f"this took longer than the {timeout:g} s that a job may take; it had come to "
        f"{progress['done']}{total} ({progress['stage'] or 'no stage'}): ask for less, or raise "
        f"MODELKIN_JOB_TIMEOUT_SECONDS"
    )


def _described(code: str, detail: str) -> dict[str, str]:
    """The code and the detail of an error, as in problem documents."""
    return {"code": code, "detail": detail[:_MAX_ERROR_LENGTH]}


def _showing(job: JobRecord) -> AbstractContextManager[None]:
    """What the transactions of a job see: its tenant's rows; all, if it is the service's."""
    return every_tenant() if job.tenant.name == SERVICE else one_tenant(job.tenant.id)
