"""Webhook deliveries: each event reaches each matching subscription at least once, with retries.

The rows hold the due deliveries and their times. A job starts the due attempts, many at a time and
few for each receiver, and waits for none of them. So a slow receiver delays neither others nor a
job. The deliveries of a dead worker become due again when its lease on them expires. A receiver may
then get a ``webhook-id`` twice.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from app.infra.db.database import Database, Writer
from app.infra.db.ids import new_id
from app.infra.db.visibility import every_tenant_within
from app.infra.errors import explain
from app.infra.storage.encryption import Secrets
from app.jobs.records import JobRecord
from app.jobs.service import SERVICE, CommitHook, JobService, Progress
from app.tenancy.auth.tenants import ensure_tenant
from app.webhooks.in_flight import InFlightDeliveries
from app.webhooks.repositories import deliveries as delivery_repository
from app.webhooks.repositories import events as event_repository
from app.webhooks.repositories import subscriptions
from app.webhooks.repositories.deliveries import Delivery
from app.webhooks.repositories.subscriptions import Subscription
from app.webhooks.sender import Outcome, Sender
from app.webhooks.signing_secrets import signing_secrets
from modelkin.errors import ModelkinError

__all__ = [
    "RESUME_INTERVAL",
    "JOB_KIND",
    "RETRY_SCHEDULE",
    "DELIVERY_LEASE",
    "DeliveryService",
    "new_delivery",
    "schedule_sending",
]

JOB_KIND: Final = "deliveries"
"""The kind of the jobs that send due deliveries."""
RETRY_SCHEDULE: Final = tuple(
    timedelta(seconds=seconds)
    for seconds in (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
)
"""The delay after each failed attempt: the schedule of Standard Webhooks, 3 days."""
_JITTER_FRACTION: Final = 0.1
_DISABLE_AFTER: Final = timedelta(days=5)
"""A subscription is disabled when all attempts have failed for so long."""
_MIN_PAUSE_S, _MAX_PAUSE_S = 5.0, 300.0
"""Seconds before the next attempt at a receiver that does not answer: at first, and at most."""
DELIVERY_LEASE: Final = timedelta(seconds=90)
"""The time for which a worker reserves a delivery; it is due again if its attempt has not ended."""
_LIMITS: Final = delivery_repository.ConcurrencyLimits(total=32, per_tenant=8, per_subscription=2)
_DECRYPTION_RETRY_S: Final = 60.0
"""Seconds between two attempts to decrypt the secrets of a subscription."""
_MAX_LOG_ENTRIES: Final = 20
_BATCH_SIZE: Final = 500
RESUME_INTERVAL: Final = timedelta(seconds=5)
"""The interval in which each worker starts due deliveries, beside the jobs."""

log = logging.getLogger(__name__)


def new_delivery(
    subscription: Subscription, event_id: str, event_type: str, body: bytes
) -> Delivery:
    """A delivery that is due now."""
    now = datetime.now(UTC)
    return Delivery(
        id=new_id(now),
        tenant_id=subscription.tenant_id,
        subscription_id=subscription.id,
        event_id=event_id,
        type=event_type,
        body=body,
        state="pending",
        attempts=0,
        log=[],
        due_at=now,
        created_at=now,
        finished_at=None,
    )


def schedule_sending(session: Writer, jobs: JobService, at: datetime | None = None) -> None:
    """Enqueue the job that sends due deliveries, once the caller's transaction is committed.

    Args:
        at: the start of the job; None for at once.
    """
    key = "now"
    if at is not None:
        at = at.replace(microsecond=0) + timedelta(seconds=1)  # one job for all of a second
        key = f"at {at.isoformat()}"
    with every_tenant_within(session):  # the job is the service's
        tenant = ensure_tenant(session, SERVICE)
        jobs.enqueue(session, tenant, JOB_KIND, {}, dedup_key=key, not_before=at)


@dataclass(frozen=True, slots=True)
class _Due:
    """A delivery that can be sent, its subscription and its signing secrets."""

    delivery: Delivery
    subscription: Subscription
    secrets: Sequence[str] = field(repr=False)


class DeliveryService:
    """Sends due deliveries from a worker's process.

    A job or a periodic task starts as many attempts as the limits allow, and ends. Each attempt has
    a thread of its own. When an attempt ends, it starts the next one.

    Args:
        jobs: the queue, for the jobs that start later attempts.
        secrets: decrypts the signing secrets.
        sender: makes attempts.
        retention: the time for which finished deliveries are kept.
        schedule: see :data:`RETRY_SCHEDULE`.
    """

    def __init__(
        self,
        database: Database,
        jobs: JobService,
        secrets: Secrets,
        sender: Sender,
        *,
        retention: timedelta,
        schedule: Sequence[timedelta] = RETRY_SCHEDULE,
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._secrets = secrets
        self._sender = sender
        self._retention = retention
        self._schedule = schedule
        self._in_flight = InFlightDeliveries()
        self._starting = threading.Lock()
        self._undecryptable: dict[str, float] = {}
        self._closed = threading.Event()

    def close(self) -> None:
        """Start no more attempts. Deliveries in flight become due again unless they end in time."""
        self._closed.set()

    # --- starting attempts --------------------------------------------------------------------

    def execute(self, _job: JobRecord, _progress: Progress) -> CommitHook:
        """Start the due deliveries."""
        begun = self._start_due()

        def finish(session: Writer) -> Mapping[str, Any]:
            # While this job held the dedup key, new deliveries could not enqueue another one.
            session.after_commit(self._try_start_due)
            return {"begun": begun}

        return finish

    def resume(self) -> None:
        """Start deliveries that a dead or busy worker has left behind; delete old ones."""
        self._start_due()
        before = datetime.now(UTC) - self._retention
        with self._database.reading() as session:
            if not (
                delivery_repository.any_expired(session, before)
                or event_repository.any_fanned_out(session, before)
            ):
                return
        with self._database.writing() as session:
            delivery_repository.prune_deliveries(session, before, limit=_BATCH_SIZE)
            event_repository.prune_events(session, before, limit=_BATCH_SIZE)

    def _try_start_due(self) -> None:
        """Try to start due deliveries; never raise."""
        try:
            self._start_due()
        except ModelkinError as error:
            log.warning("deliveries wait: %s", explain(error))
        except Exception:
            log.exception("deliveries wait, because of a bug")

    def _start_due(self) -> int:
        """Start as many attempts as the limits allow; returns how many."""
        begun = 0
        with self._starting:
            while not self._closed.is_set() and (due := self._due()):
                until = datetime.now(UTC) + DELIVERY_LEASE
                # All workers lock in the same order, so that they cannot deadlock.
                due.sort(key=lambda each: each.delivery.id)
                with self._database.writing() as session:
                    reserved = [
                        each
                        for each in due
                        if delivery_repository.reserve(session, each.delivery, until)
                    ]
                for each in reserved:
                    attempt = partial(self._attempt, each, until)
                    self._in_flight.begin(each.delivery, attempt, self._try_start_due)
                begun += len(reserved)
        return begun

    def _due(self) -> list[_Due]:
        """The due deliveries whose signing secrets this process can decrypt."""
        now, clock = datetime.now(UTC), time.monotonic()
        self._undecryptable = {
            name: until for name, until in self._undecryptable.items() if clock < until
        }
        with self._database.reading() as session:
            while chosen := delivery_repository.find_due(
                session,
                now,
                limits=_LIMITS,
                in_flight=self._in_flight.deliveries(),
                excluded=self._undecryptable,
            ):
                ids = {delivery.subscription_id for delivery in chosen}
                known = subscriptions.find_subscriptions(session, ids)
                decrypted = self._decrypt(known.values(), now)
                due = [
                    _Due(each, known[each.subscription_id], decrypted[each.subscription_id])
                    for each in chosen
                    if each.subscription_id in decrypted
                ]
                if due:
                    return due
        return []

    def _decrypt(
        self, subscribed: Iterable[Subscription], now: datetime
    ) -> dict[str, Sequence[str]]:
        """The signing secrets by subscription, without those that this process cannot decrypt.

        Another process may have the key of the secrets that are left out.
        """
        decrypted: dict[str, Sequence[str]] = {}
        failed: dict[str, ModelkinError] = {}
        for subscription in subscribed:
            try:
                decrypted[subscription.id] = signing_secrets(self._secrets, subscription, now)
            except ModelkinError as error:
                failed[subscription.id] = error
        if failed:
            why = next(iter(failed.values()))
            log.error("nothing is sent to the subscriptions %s: %s", ", ".join(failed), why)
            self._undecryptable |= dict.fromkeys(failed, time.monotonic() + _DECRYPTION_RETRY_S)
        return decrypted

    # --- an attempt ---------------------------------------------------------------------------

    def _attempt(self, due: _Due, leased_until: datetime) -> None:
        """Send a delivery, and record the outcome."""
        outcome = self._send(due)
        delivery, subscription = due.delivery, due.subscription
        with self._database.writing() as session:
            self._record(session, subscription, delivery, leased_until, outcome)
        if not outcome.succeeded:
            about = subscription.id, delivery.attempts + 1, outcome.kind
            log.info("delivery %s to subscription %s, attempt %d: %s", delivery.id, *about)

    def _send(self, due: _Due) -> Outcome:
        """The outcome of an attempt. A bug counts as a failure, so that retries end."""
        try:
            return self._sender.send(
                due.subscription.url, due.delivery.id, due.delivery.body, due.secrets
            )
        except Exception as error:
            log.exception("delivery %s met a bug", due.delivery.id)
            why = f"not sent: the service met a bug ({type(error).__name__})"
            return Outcome(datetime.now(UTC), 0.0, None, why)

    def _record(
        self,
        session: Writer,
        subscription: Subscription,
        delivery: Delivery,
        leased_until: datetime,
        outcome: Outcome,
    ) -> None:
        """Update a delivery and its subscription after an attempt."""
        current = subscriptions.lock_subscription(session, subscription.id)
        if current is None:
            return
        changes, health = self._changes_after(delivery, current, outcome, datetime.now(UTC))
        if current.url != subscription.url:
            # The URL has changed: this attempt says nothing about the new receiver.
            health = {}
            if not outcome.succeeded:
                changes = {"log": changes["log"], "due_at": datetime.now(UTC)}
        if delivery_repository.record_attempt(session, delivery, leased_until, **changes):
            # Sorted, so that two workers that wait for each other's jobs cannot deadlock.
            for due in sorted(filter(None, (changes["due_at"], health.get("paused_until")))):
                schedule_sending(session, self._jobs, due)
            subscriptions.change_by_id(session, subscription.id, **health)
            if health.get("disabled_reason"):
                log.warning("subscription %s is disabled: %s", subscription.id, outcome.kind)

    def _changes_after(
        self, delivery: Delivery, current: Subscription, outcome: Outcome, now: datetime
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the new values of columns: of the delivery's row, and of its subscription's."""
        attempts = delivery.attempts + 1
        changes: dict[str, Any] = {"attempts": attempts, "log": _append_to_log(delivery, outcome)}
        if outcome.succeeded:
            changes |= {"state": "succeeded", "due_at": None, "finished_at": now}
        elif outcome.gone or attempts > len(self._schedule):
            changes |= {"state": "failed", "due_at": None, "finished_at": now}
        else:
            changes["due_at"] = now + self._pause(attempts, outcome)
        health = _health(current, outcome, now)
        if current.previous_until is not None and current.previous_until <= now:
            health |= {"previous_secrets": None, "previous_until": None}
        return changes, health

    def _pause(self, attempts: int, outcome: Outcome) -> timedelta:
        """The delay until the next attempt: never shorter than the receiver asked for."""
        planned = self._schedule[attempts - 1] * (1 + random.uniform(0, _JITTER_FRACTION))  # noqa: S311
        return max(planned, timedelta(seconds=outcome.retry_after or 0))


def _health(subscription: Subscription, outcome: Outcome, now: datetime) -> dict[str, Any]:
    """The columns of a subscription that record how its receiver answers, after this outcome."""
    if outcome.succeeded:
        return {
            "failures": 0,
            "failing_since": None,
            "paused_until": None,
            "last_success_at": now,
        }
    failures = subscription.failures + 1
    since = subscription.failing_since or now
    health: dict[str, Any] = {
        "failures": failures,
        "failing_since": since,
        "last_failure": {
            "at": outcome.at.isoformat(),
            "status": outcome.status,
            "detail": outcome.detail,
        },
    }
    if outcome.status is None:
        pause = min(_MIN_PAUSE_S * 2 ** min(failures - 1, 20), _MAX_PAUSE_S)
        health["paused_until"] = now + timedelta(seconds=pause)
    elif outcome.retry_after is not None and outcome.status in {429, 503}:
        health["paused_until"] = now + timedelta(seconds=outcome.retry_after)
    if outcome.gone:
        reason = "its receiver answered 410 Gone: it accepts no more events"
        health |= {"enabled": False, "disabled_reason": reason}
    elif now - since >= _DISABLE_AFTER:
        reason = f"every attempt since {since:%Y-%m-%d %H:%M} UTC has failed: {outcome.detail}"
        health |= {"enabled": False, "disabled_reason": reason[:2000]}
    return health


def _append_to_log(delivery: Delivery, outcome: Outcome) -> list[dict[str, Any]]:
    line = {**asdict(outcome), "at": outcome.at.isoformat()}
    return [*delivery.log, line][-_MAX_LOG_ENTRIES:]
