"""Deliveries: each event to each subscription that hears of it, at least once, again if need be.

The rows say what is to be sent and when; a job of the service's own begins what is due, many at a
time and few to one receiver, and waits for none of them: one who is slow holds up nobody else, and
no other job. Where a worker dies, what it had taken is due again after a while: a receiver may then
see a ``webhook-id`` twice.
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

from app.auth.tenants import ensure_tenant
from app.infra.db.database import Database, Writer
from app.infra.db.ids import new_id
from app.infra.storage.encryption import Secrets
from app.jobs.records import JobRecord
from app.jobs.service import SERVICE, CommitHook, JobService, Progress
from app.webhooks import delivery_repository, event_repository, repository
from app.webhooks.delivery_repository import Delivery
from app.webhooks.in_flight import InFlightDeliveries
from app.webhooks.repository import Subscription
from app.webhooks.sender import Outcome, Sender
from app.webhooks.signing_secrets import signing
from modelkin.errors import ModelkinError

__all__ = ["EVERY", "KIND", "SCHEDULE", "TAKEN", "DeliveryService", "new_delivery", "wake"]

KIND: Final = "deliveries"
"""The kind of the jobs that send what is due."""
SCHEDULE: Final = tuple(
    timedelta(seconds=seconds)
    for seconds in (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
)
"""After the first, second, ... attempt that failed: that of Standard Webhooks, 3 days in all."""
_JITTER: Final = 0.1
_PATIENCE: Final = timedelta(days=5)
"""A subscription none of whose attempts has succeeded for so long is disabled."""
_PAUSE: Final = (5.0, 300.0)
"""Seconds for which a receiver that does not answer at all is left alone: at first, and at most."""
TAKEN: Final = timedelta(seconds=90)
"""Whoever has taken a delivery and is not heard of for so long is dead."""
_ROOM: Final = delivery_repository.FreeSlots(all=32, each_tenant=8, each=2)
_SEALED: Final = 60.0
"""Seconds after which it is tried again to decrypt secrets."""
_LOGGED: Final = 20
_AT_ONCE: Final = 500
EVERY: Final = timedelta(seconds=5)
"""Between looks for what was left lying."""

log = logging.getLogger(__name__)


def new_delivery(subscription: Subscription, event_id: str, kind: str, body: bytes) -> Delivery:
    """A delivery that is due at once."""
    now = datetime.now(UTC)
    return Delivery(
        id=new_id(now),
        tenant_id=subscription.tenant_id,
        subscription_id=subscription.id,
        event_id=event_id,
        type=kind,
        body=body,
        state="pending",
        attempts=0,
        log=[],
        due_at=now,
        created_at=now,
        finished_at=None,
    )


def wake(session: Writer, jobs: JobService, at: datetime | None = None) -> None:
    """Have what is due sent, now or at some moment, once the caller's change is committed."""
    tenant = ensure_tenant(session, SERVICE)
    if at is None:
        jobs.enqueue(session, tenant, KIND, {}, dedup_key="now")
    else:
        at = at.replace(microsecond=0) + timedelta(seconds=1)  # one job for all of a second
        jobs.enqueue(session, tenant, KIND, {}, dedup_key=f"at {at.isoformat()}", not_before=at)


@dataclass(frozen=True, slots=True)
class _Due:
    """What can be sent, where to, and what signs it."""

    delivery: Delivery
    subscription: Subscription
    secrets: Sequence[str] = field(repr=False)


class DeliveryService:
    """Sends what is due, from the process of a worker.

    A job or a look begins what there is room for, and is over: the attempts have threads of their
    own, and whichever ends begins the next one.

    Args:
        database: the truth.
        jobs: say when there is something to send; the kind is registered here.
        secrets: decrypts those that sign.
        sender: makes attempts.
        retention: for how long what has ended is kept.
        schedule: see :data:`SCHEDULE`.
    """

    def __init__(
        self,
        database: Database,
        jobs: JobService,
        secrets: Secrets,
        sender: Sender,
        *,
        retention: timedelta,
        schedule: Sequence[timedelta] = SCHEDULE,
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._secrets = secrets
        self._sender = sender
        self._retention = retention
        self._schedule = schedule
        self._under_way = InFlightDeliveries()
        self._beginning = threading.Lock()
        self._sealed: dict[str, float] = {}
        self._closed = threading.Event()

    def close(self) -> None:
        """Begin nothing more. What is under way is due again unless it ends in time."""
        self._closed.set()

    # --- what makes it begin ------------------------------------------------------------------

    def execute(self, _job: JobRecord, _progress: Progress) -> CommitHook:
        """Begin what is due."""
        begun = self._begin()

        def finish(session: Writer) -> Mapping[str, Any]:
            # What came while this job still held its key has got no job of its own.
            session.after_commit(self._go_on)
            return {"begun": begun}

        return finish

    def resume(self) -> None:
        """Begin what was left lying, by whoever died or had no room; forget what is old."""
        self._begin()
        before = datetime.now(UTC) - self._retention
        with self._database.reading() as session:
            if not (
                delivery_repository.any_old(session, before)
                or event_repository.any_fanned_out(session, before)
            ):
                return
        with self._database.writing() as session:
            delivery_repository.prune_deliveries(session, before, limit=_AT_ONCE)
            event_repository.prune_events(session, before, limit=_AT_ONCE)

    def _go_on(self) -> None:
        """Begin what is due, for whom it is none of their business whether that can be done."""
        try:
            self._begin()
        except ModelkinError as error:
            log.warning("deliveries wait: %s", error)
        except Exception:
            log.exception("deliveries wait, because of a bug")

    def _begin(self) -> int:
        """Begin every attempt that there is room for; how many."""
        begun = 0
        with self._beginning:
            while not self._closed.is_set() and (due := self._due()):
                until = datetime.now(UTC) + TAKEN
                # In the order of all workers, so that no two wait for each other in a circle.
                due.sort(key=lambda each: each.delivery.id)
                with self._database.writing() as session:
                    taken = [
                        each
                        for each in due
                        if delivery_repository.take(session, each.delivery, until)
                    ]
                for each in taken:
                    attempt = partial(self._attempt, each, until)
                    self._under_way.begin(each.delivery, attempt, self._go_on)
                begun += len(taken)
        return begun

    def _due(self) -> list[_Due]:
        """What is due and can be sent from here."""
        now, clock = datetime.now(UTC), time.monotonic()
        self._sealed = {name: until for name, until in self._sealed.items() if clock < until}
        with self._database.reading() as session:
            while chosen := delivery_repository.find_due(
                session,
                now,
                room=_ROOM,
                under_way=self._under_way.deliveries(),
                without=self._sealed,
            ):
                ids = {delivery.subscription_id for delivery in chosen}
                known = repository.find_subscriptions(session, ids)
                opened = self._opened(known.values(), now)
                due = [
                    _Due(each, known[each.subscription_id], opened[each.subscription_id])
                    for each in chosen
                    if each.subscription_id in opened
                ]
                if due:
                    return due
        return []

    def _opened(
        self, subscribed: Iterable[Subscription], now: datetime
    ) -> dict[str, Sequence[str]]:
        """What signs for each; those that this process has no key for are left to others."""
        opened: dict[str, Sequence[str]] = {}
        sealed: dict[str, ModelkinError] = {}
        for subscription in subscribed:
            try:
                opened[subscription.id] = signing(self._secrets, subscription, now)
            except ModelkinError as error:
                sealed[subscription.id] = error
        if sealed:
            why = next(iter(sealed.values()))
            log.error("nothing is sent to the subscriptions %s: %s", ", ".join(sealed), why)
            self._sealed |= dict.fromkeys(sealed, time.monotonic() + _SEALED)
        return opened

    # --- an attempt ---------------------------------------------------------------------------

    def _attempt(self, due: _Due, taken: datetime) -> None:
        """Send one, and record what came of it."""
        outcome = self._sent(due)
        delivery, subscription = due.delivery, due.subscription
        with self._database.writing() as session:
            self._record(session, subscription, delivery, taken, outcome)
        if not outcome.succeeded:
            told = subscription.id, delivery.attempts + 1, outcome.kind
            log.info("delivery %s to subscription %s, attempt %d: %s", delivery.id, *told)

    def _sent(self, due: _Due) -> Outcome:
        """What came of it; it counts whatever that was, or it would be tried for ever."""
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
        taken: datetime,
        outcome: Outcome,
    ) -> None:
        """What an attempt means for its delivery and its subscription."""
        current = repository.lock_subscription(session, subscription.id)
        if current is None:
            return
        told, fares = self._meaning(delivery, current, outcome, datetime.now(UTC))
        if current.url != subscription.url:
            # Who was asked is asked no more: that says nothing about the receiver there is now.
            fares = {}
            if not outcome.succeeded:
                told = {"log": told["log"], "due_at": datetime.now(UTC)}
        if delivery_repository.record_attempt(session, delivery, taken, **told):
            # In order, so that two who wait for each other's jobs never do so in a circle.
            for due in sorted(filter(None, (told["due_at"], fares.get("paused_until")))):
                wake(session, self._jobs, due)
            repository.change_by_id(session, subscription.id, **fares)
            if fares.get("disabled_reason"):
                log.warning("subscription %s is disabled: %s", subscription.id, outcome.kind)

    def _meaning(
        self, delivery: Delivery, current: Subscription, outcome: Outcome, now: datetime
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What an attempt means, in columns of its delivery and of its subscription."""
        attempts = delivery.attempts + 1
        told: dict[str, Any] = {"attempts": attempts, "log": _logged(delivery, outcome)}
        if outcome.succeeded:
            told |= {"state": "succeeded", "due_at": None, "finished_at": now}
        elif outcome.gone or attempts > len(self._schedule):
            told |= {"state": "failed", "due_at": None, "finished_at": now}
        else:
            told["due_at"] = now + self._pause(attempts, outcome)
        fares = _fares(current, outcome, now)
        if current.previous_until is not None and current.previous_until <= now:
            fares |= {"previous_secrets": None, "previous_until": None}
        return told, fares

    def _pause(self, attempts: int, outcome: Outcome) -> timedelta:
        """How long until the next attempt: never sooner than the receiver asked for."""
        planned = self._schedule[attempts - 1] * (1 + random.uniform(0, _JITTER))  # noqa: S311
        return max(planned, timedelta(seconds=outcome.retry_after or 0))


def _fares(subscription: Subscription, outcome: Outcome, now: datetime) -> dict[str, Any]:
    """How the receiver of a subscription fares with this outcome, in columns."""
    if outcome.succeeded:
        return {
            "failures": 0,
            "failing_since": None,
            "paused_until": None,
            "last_success_at": now,
        }
    failures = subscription.failures + 1
    since = subscription.failing_since or now
    fares: dict[str, Any] = {
        "failures": failures,
        "failing_since": since,
        "last_failure": {
            "at": outcome.at.isoformat(),
            "status": outcome.status,
            "detail": outcome.detail,
        },
    }
    if outcome.status is None:
        first, most = _PAUSE
        pause = min(first * 2 ** min(failures - 1, 20), most)
        fares["paused_until"] = now + timedelta(seconds=pause)
    elif outcome.retry_after is not None and outcome.status in {429, 503}:
        fares["paused_until"] = now + timedelta(seconds=outcome.retry_after)
    if outcome.gone:
        reason = "its receiver answered 410 Gone: it wants no more events"
        fares |= {"enabled": False, "disabled_reason": reason}
    elif now - since >= _PATIENCE:
        reason = f"every attempt since {since:%Y-%m-%d %H:%M} UTC has failed: {outcome.detail}"
        fares |= {"enabled": False, "disabled_reason": reason[:2000]}
    return fares


def _logged(delivery: Delivery, outcome: Outcome) -> list[dict[str, Any]]:
    line = {**asdict(outcome), "at": outcome.at.isoformat()}
    return [*delivery.log, line][-_LOGGED:]
