"""``JobClaim``: a job that a worker holds, from its claim to the record of its end.

The ``worker`` and ``attempts`` of the row identify the claim. Every write here names both, so it
changes nothing once the job was taken over, cancelled or ended.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, select, update

from app.infra.db.database import Database, Writer
from app.infra.db.tables.jobs import JobRow
from app.infra.errors import JobTimeout, Unavailable, explain
from app.jobs.records import CANCELLED, CHANNEL, JobRecord, JobState, kept_parameters
from app.jobs.service import CommitHook
from modelkin.errors import JobCancelled

__all__ = ["JobClaim", "LeaseLost", "ShuttingDown"]

T = TypeVar("T")

_PROGRESS_INTERVAL_S: Final = 0.4
"""Seconds between two records of a job's progress."""
_WRITE_RETRY_S: Final = 0.5
"""Seconds between two attempts to write a job's state."""
_MAX_ERROR_LENGTH: Final = 2000
"""Characters of an error that are kept."""

log = logging.getLogger(__name__)


class ShuttingDown(BaseException):
    """The worker is stopping: the job is queued again. Handlers must not catch it."""


class LeaseLost(BaseException):
    """Another worker has taken the job over: this attempt has no effect."""


class JobClaim:
    """One attempt of a worker at a job.

    Args:
        job: the job as it was claimed.
        stopping: set when the worker stops.
        timeout: seconds from now after which the handler is stopped.
    """

    def __init__(
        self,
        database: Database,
        job: JobRecord,
        stopping: threading.Event,
        timeout: float = math.inf,
    ) -> None:
        self.job = job
        self._database = database
        self._stopping = stopping
        self._timeout = timeout
        self._began = time.monotonic()
        self._next = 0.0
        self._reported: dict[str, Any] | None = None

    def progress(self, done: int, total: int, stage: str = "") -> None:
        """Record the handler's progress, now and then; it is :class:`app.jobs.service.Progress`.

        Raises:
            ShuttingDown: the worker is stopping.
            LeaseLost: another worker has the job.
        """
        if self._stopping.is_set():
            raise ShuttingDown
        staged = self._reported is None or self._reported["stage"] != stage
        self._reported = {"done": int(done), "total": int(total), "stage": stage}
        now = time.monotonic()
        if now - self._began > self._timeout:
            raise JobTimeout(_timeout_message(self._timeout, self._reported))
        if now < self._next and not staged:
            return
        self._next = now + _PROGRESS_INTERVAL_S
        try:
            with self._database.writing() as session:
                cancelling = self._change(session, progress=self._reported)
        except Unavailable as error:
            log.info("the progress of job %s is not recorded now: %s", self.job.id, explain(error))
            return
        if cancelling is None:
            raise LeaseLost
        if cancelling:
            raise JobCancelled(f"job {self.job.id} was cancelled")

    def finish(self, outcome: Mapping[str, Any] | CommitHook) -> None:
        """Write the effects and the success in one transaction.

        The job's row is locked last: a holder of the other locks may enqueue a job meanwhile.

        Raises:
            JobCancelled: a client has cancelled the job.
            LeaseLost: another worker has it.
        """
        with self._database.writing() as session:
            result = outcome if isinstance(outcome, Mapping) else outcome(session)
            in_time = JobRow.cancel_requested.is_(False)
            if self._end(session, "succeeded", in_time, result=dict(result)) is None:
                if self._is_cancelled(session):
                    raise JobCancelled(f"job {self.job.id} was cancelled")
                raise LeaseLost
        log.info("job %s (%s) succeeded", self.job.id, self.job.kind)

    def fail(self, code: str, detail: str) -> None:
        """End the job without effects; a job that is being cancelled ends as cancelled."""
        error = _error_fields(code, detail)

        def end(session: Writer) -> bool | None:
            if self._is_cancelled(session):
                return self._end(session, "cancelled", error=CANCELLED)
            return self._end(session, "failed", error=error)

        if self._write(end) is not None:
            log.info("job %s (%s) ends: %s", self.job.id, self.job.kind, code)

    def requeue(self) -> None:
        """Queue the job again, behind the other jobs of its tenant; this attempt does not count."""
        self._queue_again(attempts=self.job.attempts - 1, error=None, not_before=None)

    def retry(self, error: Unavailable, seconds: float, *, counts: bool) -> None:
        """Queue the job for another attempt later, and show why until it ends.

        Args:
            counts: whether this attempt counts towards the job's limit.
        """
        job = self.job
        log.warning("job %s (%s) waits %.0f s: %s", job.id, job.kind, seconds, explain(error))
        self._queue_again(
            attempts=job.attempts - (not counts),
            error=_error_fields(error.code, f"{error}; the next attempt is in {seconds:.0f} s"),
            not_before=datetime.now(UTC) + timedelta(seconds=seconds),
        )

    def _queue_again(self, **values: Any) -> None:
        def queue(session: Writer) -> None:
            now = datetime.now(UTC)
            wanted = JobRow.cancel_requested.is_(False)
            again = {"state": "queued", "worker": None, "queued_at": now, **values}
            if self._change(session, wanted, **again) is None and self._is_cancelled(session):
                self._end(session, "cancelled", error=CANCELLED)
            session.notify(CHANNEL)

        self._write(queue)

    def _end(
        self, session: Writer, state: JobState, *conditions: ColumnElement[bool], **values: Any
    ) -> bool | None:
        """Record the end with ``result`` or ``error``; None where the claim is lost."""
        return self._change(
            session,
            *conditions,
            state=state,
            progress=self._reported or self.job.progress,
            parameters=kept_parameters(self.job.parameters),
            dedup_key=None,
            finished_at=datetime.now(UTC),
            **{"result": None, "error": None, **values},
        )

    def _change(
        self, session: Writer, *conditions: ColumnElement[bool], **values: Any
    ) -> bool | None:
        """Whether the changed job is being cancelled; None where the claim is lost."""
        done = session.execute(
            update(JobRow)
            .where(self._is_valid(), *conditions)
            .values(revision=JobRow.revision + 1, **values)
            .returning(JobRow.cancel_requested)
            .execution_options(synchronize_session=False)
        )
        return done.scalar_one_or_none()

    def _is_cancelled(self, session: Writer) -> bool | None:
        return session.scalar(select(JobRow.cancel_requested).where(self._is_valid()))

    def _is_valid(self) -> ColumnElement[bool]:
        job = self.job
        held = (JobRow.worker == job.worker) & (JobRow.attempts == job.attempts)
        return (JobRow.id == job.id) & (JobRow.state == "running") & held

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


def _timeout_message(timeout: float, progress: Mapping[str, Any]) -> str:
    """The message of a job that took too long: its progress, and what to do."""
    total = f" of {progress['total']}" if progress["total"] else ""
    return (
        f"this took longer than the {timeout:g} s that a job may take; it had come to "
        f"{progress['done']}{total} ({progress['stage'] or 'no stage'}): ask for less, or raise "
        f"MODELKIN_JOB_TIMEOUT_SECONDS"
    )


def _error_fields(code: str, detail: str) -> dict[str, str]:
    """The code and the detail of an error, as in problem documents."""
    return {"code": code, "detail": detail[:_MAX_ERROR_LENGTH]}
