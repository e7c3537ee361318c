"""Jobs: work that takes longer than an answer, enqueued in the transaction that requires it.

A job is a row of the caller's transaction, so both are stored or neither. The ``workers`` carry it
out once that is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from app.infra.db.database import Reader, Writer
from app.infra.db.ids import new_id
from app.infra.errors import JobFinished, Unavailable
from app.jobs import repository
from app.jobs.records import CANCELLED, CHANNEL, JobRecord, JobState, QueueName, kept_parameters
from app.removed import JOB_KINDS
from app.tenancy.auth.records import OwnedSpace, Tenant
from app.tenancy.quotas.service import QuotaService
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page

__all__ = [
    "SERVICE",
    "CommitHook",
    "Handler",
    "JobService",
    "PeriodicTask",
    "PeriodicJob",
    "Progress",
    "Unfinished",
]

SERVICE = "(service)"
"""The tenant of the service's own jobs. No key can have such a name, so no client sees them."""
MAX_DEDUP_KEY_LENGTH = 200
_MAX_ATTEMPTS = 5
"""Attempts to insert a job; one fails only if the job with its key ends at that moment."""


class Progress(Protocol):
    """Reports the progress of a handler. A few reports a second are recorded, however many come.

    Args:
        done: units of work done, as the handler counts them.
        total: units of work in all; 0 if unknown.
        stage: the present stage, for people.

    Raises:
        JobCancelled: a client cancelled the job. Handlers must not catch it.
        JobTimeout: the attempt has taken longer than it may. Handlers must not catch it.
    """

    def __call__(self, done: int, total: int, stage: str = "") -> None: ...


class Unfinished(Exception):
    """A job has worked for its time slice, and goes on when its turn comes again.

    It keeps its dedup key, so no second job does the same beside it.
    """


CommitHook = Callable[[Writer], Mapping[str, Any]]
"""Writes the effects of a job and returns its result, in the transaction that ends the job."""

Handler = Callable[[JobRecord, Progress], Mapping[str, Any] | CommitHook]
"""Carries out a job, without a transaction over long work, and returns a small JSON result.

It is called again, from the start, after a worker died or a store was unavailable: so its own
effects must be idempotent. For an effect that must happen once, a handler returns a
:data:`CommitHook`. The hook runs in the transaction that marks the job as succeeded, or not at all.

A job whose handler or hook raises :class:`Unfinished` is queued again, behind the other jobs. A job
that raises :class:`app.infra.errors.Unavailable` is retried a few times, and with
:class:`app.infra.errors.RetryLater` for days. Any other error fails the job.
"""


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A short task that every worker runs periodically, without a job."""

    name: str
    every: timedelta
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job of the service's own that the workers enqueue periodically, if it is needed."""

    kind: str
    every: timedelta
    parameters: Mapping[str, Any]
    wanted: Callable[[Reader], bool]


class JobService:
    """Enqueues, lists and cancels jobs, and knows the handlers of all kinds.

    Args:
        now: returns the present moment, in UTC.
        quotas: the quotas of tenants; None for no limit.
    """

    def __init__(
        self,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        quotas: QuotaService | None = None,
    ) -> None:
        self._now = now
        self._quotas = quotas
        self._periodic_tasks: list[PeriodicTask] = []
        self._handlers: dict[str, Handler] = {}
        self._queues: dict[str, QueueName] = {}
        self._periodic: list[PeriodicJob] = []
        self._listeners: list[Callable[[], None]] = []

    # --- kinds --------------------------------------------------------------------------------

    def register(self, kind: str, handler: Handler, *, queue: QueueName = "jobs") -> None:
        """Register the handler of a kind of jobs. Each kind has one.

        Args:
            queue: the queue of this kind. Jobs that wait for hubs have a separate queue, so they
                delay no other jobs. Jobs of a few seconds have one, too, so no other jobs delay
                them.
        """
        if kind in self._handlers:
            raise ValueError(f"the kind {kind!r} is registered already")
        self._handlers[kind] = handler
        self._queues[kind] = queue

    def wrap_handlers(self, wrap: Callable[[str, Handler], Handler]) -> None:
        """Replace the handler of each kind by the result of ``wrap``."""
        self._handlers = {kind: wrap(kind, each) for kind, each in self._handlers.items()}

    def enqueue_every(
        self,
        period: timedelta,
        kind: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        wanted: Callable[[Reader], bool] = lambda _: True,
    ) -> None:
        """Have the workers enqueue a registered kind once in every period, for the service.

        Args:
            wanted: a cheap query whether the job has anything to do.
        """
        self._require_known(kind)
        self._periodic.append(PeriodicJob(kind, period, parameters or {}, wanted))

    def run_every(self, period: timedelta, name: str, run: Callable[[], object]) -> None:
        """Have each worker call ``run`` once in every period, beside its jobs.

        The call creates no job and waits for none. It must be short. Several workers may call it at
        the same time, and for a long time no worker may call it.
        """
        self._periodic_tasks.append(PeriodicTask(name, period, run))

    def handler(self, kind: str) -> Handler:
        """The handler of a kind of jobs.

        Raises:
            InvalidParameter: jobs of this kind are gone.
            Unavailable: this process has none; a process of another version may have one.
        """
        handler = self._handlers.get(kind)
        if handler is None:
            if kind in JOB_KINDS:
                raise InvalidParameter(JOB_KINDS[kind], field="kind")
            raise Unavailable(f"this worker knows no jobs of kind {kind!r}: is it of this version?")
        return handler

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds with a handler."""
        return frozenset(self._handlers)

    @property
    def queues(self) -> Mapping[str, QueueName]:
        """The queue of each kind with a handler."""
        return dict(self._queues)

    @property
    def periodic(self) -> tuple[PeriodicJob, ...]:
        """The periodic jobs."""
        return tuple(self._periodic)

    @property
    def periodic_tasks(self) -> tuple[PeriodicTask, ...]:
        """The periodic tasks."""
        return tuple(self._periodic_tasks)

    def on_enqueued(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever this process has committed a new job; it must not block."""
        self._listeners.append(listener)

    # --- jobs ---------------------------------------------------------------------------------

    def enqueue(
        self,
        session: Writer,
        tenant: Tenant,
        kind: str,
        parameters: Mapping[str, Any],
        *,
        space: OwnedSpace | str | None = None,
        dedup_key: str | None = None,
        not_before: datetime | None = None,
        slot: datetime | None = None,
    ) -> JobRecord:
        """Store a job in the caller's transaction; it may start once that is committed.

        Args:
            parameters: small JSON, shown with the job.
            space: the space that it is about; the name alone where it may have to be made yet.
            dedup_key: unique among the unfinished jobs of this tenant and kind. If it is in use,
                the existing job is returned; its handler may have read its data already. Put the
                space's version into the key where that matters.
            not_before: the earliest start.
            slot: a moment that identifies the job: each kind has at most one job for a slot.

        Raises:
            QueueFull: the tenant has reached its quota of jobs that wait or run.
        """
        self._require_known(kind)
        if dedup_key is not None and not 0 < len(dedup_key) <= MAX_DEDUP_KEY_LENGTH:
            raise ValueError(f"a dedup_key has 1 to {MAX_DEDUP_KEY_LENGTH} characters")
        if self._counts(tenant, kind):
            if (kept := _find_kept(session, tenant, kind, dedup_key)) is not None:
                return kept
            self._require_room(session, tenant)
        now = self._now()
        made = new_id(now) if slot is None else new_id(slot, f"{tenant.id} {kind}")
        for _ in range(_MAX_ATTEMPTS):
            job = repository.insert_job(
                session,
                tenant,
                made,
                kind,
                parameters,
                space=space,
                dedup_key=dedup_key,
                now=now,
                not_before=not_before,
            )
            if job is not None:
                session.notify(CHANNEL)
                for listener in self._listeners:
                    session.after_commit(listener)
                return job
            if (
                slot is not None
                and (known := repository.find_job(session, tenant, made)) is not None
            ):
                return known
            if (kept := _find_kept(session, tenant, kind, dedup_key)) is not None:
                return kept
        raise Unavailable(f"jobs of kind {kind!r} with this key start and end too fast: try again")

    def get(self, session: Reader, tenant: Tenant, job_id: str) -> JobRecord:
        """The tenant's job of this id, or :class:`JobNotFound`."""
        return repository.get_job(session, tenant, job_id)

    def find_all(self, session: Reader, ids: Collection[str]) -> Mapping[str, JobRecord]:
        """The existing jobs with these ids, of any tenant: the caller has checked access."""
        return repository.jobs_by_id(session, ids)

    def list(
        self,
        session: Reader,
        tenant: Tenant,
        *,
        limit: int,
        cursor: str | None = None,
        state: JobState | None = None,
        kind: str | None = None,
        space: str | None = None,
    ) -> Page[JobRecord]:
        """The tenant's jobs, newest first.

        Raises:
            InvalidParameter: the kind is unknown.
        """
        if kind is not None and kind not in {*self._handlers, *JOB_KINDS}:
            known = ", ".join(sorted(self._handlers))
            raise InvalidParameter(f"kind is one of {known}", field="kind")
        return repository.list_jobs(
            session, tenant, limit=limit, cursor=cursor, state=state, kind=kind, space=space
        )

    def cancel(self, session: Writer, tenant: Tenant, job_id: str) -> JobRecord:
        """Cancel a job: a queued one at once, a running one as soon as its handler notices.

        A job that is being cancelled can no longer succeed. Its dedup key is free at once, so the
        same request then enqueues another job.

        Raises:
            JobNotFound: there is no job with this id.
            JobFinished: the job has succeeded or failed.
        """
        row = repository.lock_job(session, tenant, job_id)
        if row.state in {"succeeded", "failed"}:
            raise JobFinished(f"job {job_id} has {row.state} already")
        if row.state != "cancelled" and not row.cancel_requested:
            row.cancel_requested = True
            row.dedup_key = None  # the same request now enqueues a new job
            row.revision += 1
            if row.state == "queued":
                row.state, row.error = "cancelled", CANCELLED
                row.parameters = kept_parameters(row.parameters)
                row.finished_at = self._now()
        return repository.record(row, tenant)

    def count_queued(self, session: Reader, tenant: Tenant) -> int:
        """Return the number of a tenant's queued and running jobs, of the kinds that count."""
        others = sorted(kind for kind, queue in self._queues.items() if queue != "jobs")
        return repository.count_unfinished(session, tenant, but_for=others)

    def _counts(self, tenant: Tenant, kind: str) -> bool:
        """Whether jobs of a kind count: jobs of hubs, short jobs and the service's own do not."""
        return self._quotas is not None and tenant.name != SERVICE and self._queues[kind] == "jobs"

    def _require_room(self, session: Writer, tenant: Tenant) -> None:
        assert self._quotas is not None
        used = partial(self.count_queued, session, tenant)
        self._quotas.require(session, tenant.id, "queued_jobs", used)

    def _require_known(self, kind: str) -> None:
        if kind not in self._handlers:
            raise ValueError(f"the kind {kind!r} is not registered")


def _find_kept(
    session: Writer, tenant: Tenant, kind: str, dedup_key: str | None
) -> JobRecord | None:
    """The unfinished job of this key; None without one, or without a key."""
    if dedup_key is None:
        return None
    return repository.find_by_dedup_key(session, tenant, kind, dedup_key)
