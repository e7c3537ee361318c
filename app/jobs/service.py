"""Jobs: what takes longer than an answer, stored with the data that it follows.

A job is a row of the caller's own transaction: either both are there or neither. Whoever carries it
out (``workers``) sees it once that is committed. This module runs no job and knows no worker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from app.auth.records import Tenant
from app.errors import JobFinished, Unavailable
from app.infra.db.database import Reader, Writer
from app.infra.db.ids import new_id
from app.jobs import repository
from app.jobs.records import JobRecord, JobState
from app.spaces.records import SpaceRecord
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page

__all__ = [
    "CANCELLED",
    "SERVICE",
    "CommitHook",
    "Handler",
    "JobService",
    "PeriodicTask",
    "Periodic",
    "Progress",
]

SERVICE = "(service)"
"""The tenant of the service's own jobs: no key has such a name, so nobody is shown them."""
CANCELLED = {"code": "job_cancelled", "detail": "the job was cancelled"}
"""The ``error`` of a cancelled job."""
MAX_DEDUP_KEY = 200
_ATTEMPTS = 5
"""Times that a key is tried for: each needs the job that held it to end in that moment."""


class Progress(Protocol):
    """How a handler tells how far it is, as often as it likes; a few times a second are recorded.

    Args:
        done: of ``total``, in whatever the handler counts.
        total: 0 where nobody knows.
        stage: what is being done, for people.

    Raises:
        JobCancelled: somebody cancelled the job: let it through.
    """

    def __call__(self, done: int, total: int, stage: str = "") -> None: ...


CommitHook = Callable[[Writer], Mapping[str, Any]]
"""Writes the effects of a job, and answers its result, in the transaction that ends it."""

Handler = Callable[[JobRecord, Progress], Mapping[str, Any] | CommitHook]
"""Carries a job out, holding no transaction over long work, and answers a small JSON result.

It is called again, from the start, when a worker died or a store was away: what it does by itself
must bear being done twice. What must be done once it leaves to a :data:`CommitHook`, which is its
answer then: that runs in the very transaction that marks the job as succeeded, or not at all.

An :class:`app.errors.Unavailable` that it raises is tried again later, a few times, a
:class:`app.errors.RetryLater` for days; any other error is the error of the job.
"""


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A short piece of upkeep that every worker does by itself, every so often, without a job."""

    name: str
    every: timedelta
    look: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Periodic:
    """A kind of the service's own that is due every so often, where it is wanted at all."""

    kind: str
    every: timedelta
    parameters: Mapping[str, Any]
    wanted: Callable[[Reader], bool]


class JobService:
    """The use cases of jobs, and the kinds that there are.

    Args:
        now: the time.
    """

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._looks: list[PeriodicTask] = []
        self._handlers: dict[str, Handler] = {}
        self._apart: set[str] = set()
        self._periodic: list[Periodic] = []
        self._listeners: list[Callable[[], None]] = []

    # --- kinds --------------------------------------------------------------------------------

    def register(self, kind: str, handler: Handler, *, apart: bool = False) -> None:
        """Let ``handler`` carry out the jobs of a kind, once for each name.

        Args:
            apart: it waits for others who may be slow, and so has workers' places of its own.
        """
        if kind in self._handlers:
            raise ValueError(f"the kind {kind!r} is registered already")
        self._handlers[kind] = handler
        if apart:
            self._apart.add(kind)

    def every(
        self,
        period: timedelta,
        kind: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        wanted: Callable[[Reader], bool] = lambda _: True,
    ) -> None:
        """Have the workers enqueue a registered kind once in every period, for no tenant.

        Args:
            wanted: looks whether there is anything to do: a job costs more than a look.
        """
        self._require_known(kind)
        self._periodic.append(Periodic(kind, period, parameters or {}, wanted))

    def look_every(self, period: timedelta, name: str, look: Callable[[], object]) -> None:
        """Have each worker call ``look`` once in every period, beside its jobs.

        It makes no job and waits behind none. It must be short, and bear being called by several
        workers at a time, or by none for long.
        """
        self._looks.append(PeriodicTask(name, period, look))

    def handler(self, kind: str) -> Handler:
        """Who carries out jobs of this kind.

        Raises:
            Unavailable: nobody in this process; one of another version may know it.
        """
        handler = self._handlers.get(kind)
        if handler is None:
            raise Unavailable(f"this worker knows no jobs of kind {kind!r}: is it of this version?")
        return handler

    @property
    def apart(self) -> frozenset[str]:
        """The kinds that have places of their own."""
        return frozenset(self._apart)

    @property
    def periodic(self) -> tuple[Periodic, ...]:
        """What :meth:`every` was told."""
        return tuple(self._periodic)

    @property
    def looks(self) -> tuple[PeriodicTask, ...]:
        """What :meth:`look_every` was told."""
        return tuple(self._looks)

    def on_enqueued(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever this process has committed a new job; it must not wait."""
        self._listeners.append(listener)

    # --- jobs ---------------------------------------------------------------------------------

    def enqueue(
        self,
        session: Writer,
        tenant: Tenant,
        kind: str,
        parameters: Mapping[str, Any],
        *,
        space: SpaceRecord | None = None,
        dedup_key: str | None = None,
        not_before: datetime | None = None,
        slot: datetime | None = None,
    ) -> JobRecord:
        """Store a job in the caller's change; it begins once that is committed.

        Args:
            parameters: small JSON, shown with the job.
            space: what it is about.
            dedup_key: of all unfinished jobs of this tenant and kind, one has it: a second is not
                made, the first is answered, whose handler may have read its data already. Put the
                space's version into the key where that matters.
            not_before: when it may begin.
            slot: a moment of which there is one job of this kind, ever.
        """
        self._require_known(kind)
        if dedup_key is not None and not 0 < len(dedup_key) <= MAX_DEDUP_KEY:
            raise ValueError(f"a dedup_key has 1 to {MAX_DEDUP_KEY} characters")
        now = self._now()
        made = new_id(now) if slot is None else new_id(slot, f"{tenant.id} {kind}")
        for _ in range(_ATTEMPTS):
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
                for listener in self._listeners:
                    session.after_commit(listener)
                return job
            if (
                slot is not None
                and (known := repository.find_job(session, tenant, made)) is not None
            ):
                return known
            if dedup_key is not None:
                kept = repository.find_kept(session, tenant, kind, dedup_key)
                if kept is not None:
                    return kept
        raise Unavailable(f"jobs of kind {kind!r} and this key come and go too fast: try again")

    def get(self, session: Reader, tenant: Tenant, job_id: str) -> JobRecord:
        """The tenant's job of this id, or :class:`JobNotFound`."""
        return repository.get_job(session, tenant, job_id)

    def find_all(self, session: Reader, ids: Collection[str]) -> Mapping[str, JobRecord]:
        """The jobs of some ids that there are; for whoever was shown them before."""
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
            InvalidParameter: nobody knows the kind.
        """
        if kind is not None and kind not in self._handlers:
            known = ", ".join(sorted(self._handlers))
            raise InvalidParameter(f"kind is one of {known}", field="kind")
        return repository.list_jobs(
            session, tenant, limit=limit, cursor=cursor, state=state, kind=kind, space=space
        )

    def cancel(self, session: Writer, tenant: Tenant, job_id: str) -> JobRecord:
        """Cancel a job: one that waits at once, one that runs as soon as its handler hears of it.

        Whatever the handler does meanwhile, the job does not succeed any more; who asks for the
        same again gets another one.

        Raises:
            JobNotFound: there is none of this id.
            JobFinished: it has succeeded or failed.
        """
        row = repository.lock_job(session, tenant, job_id)
        if row.state in {"succeeded", "failed"}:
            raise JobFinished(f"job {job_id} has {row.state} already")
        if row.state != "cancelled" and not row.cancel_requested:
            row.cancel_requested = True
            row.dedup_key = None  # who asks again now wants it done
            row.revision += 1
            if row.state == "queued":
                row.state, row.error = "cancelled", CANCELLED
                row.finished_at = self._now()
        return repository.record(row, tenant)

    def _require_known(self, kind: str) -> None:
        if kind not in self._handlers:
            raise ValueError(f"nobody has registered the kind {kind!r}")
