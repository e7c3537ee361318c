"""Deliveries: each event to each subscription that hears of it, at least once, again if need be.

The rows say what is to be sent and when; a job of the service's own sends what is due, many at a
time and few to one receiver, so that one who is slow holds up nobody else. Where a worker dies,
what it had taken is due again after a while: a receiver may then see a ``webhook-id`` twice.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from app.services.jobs import SERVICE, Finish, JobService, Progress, job_id
from app.services.subscriptions.sending import Outcome, Sender
from app.stores.ports import JobRecord
from app.stores.secrets import Secrets
from app.stores.sql import events, sent, subscriptions
from app.stores.sql.database import Database, Reader, Writer
from app.stores.sql.sent import Delivery
from app.stores.sql.spaces import ensure_tenant
from app.stores.sql.subscriptions import Subscription
from modelkin.errors import ModelkinError

__all__ = ["KIND", "SCHEDULE", "DeliveryService", "new_delivery", "wake"]

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
_TAKEN: Final = timedelta(seconds=90)
"""Whoever has taken a delivery and is not heard of for so long is dead."""
_ROOM: Final = sent.Room(all=32, each_tenant=8, each=2)
_SLICE: Final = 15.0
"""Seconds after which the job lets others have its place, and is enqueued again."""
_LOOK: Final = 0.1
_BREATH: Final = timedelta(seconds=1)
_LOGGED: Final = 20
_AT_ONCE: Final = 500
_LATE: Final = timedelta(seconds=5)
EVERY: Final = timedelta(seconds=5)

log = logging.getLogger(__name__)


def new_delivery(subscription: Subscription, event_id: str, kind: str, body: bytes) -> Delivery:
    """A delivery that is due at once."""
    now = datetime.now(UTC)
    return Delivery(
        id=job_id(now),
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


class DeliveryService:
    """Sends what is due.

    Args:
        database: the truth.
        jobs: carry this out; the kind is registered here.
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
        self._under_way = _UnderWay()
        jobs.register(KIND, self._carry_out)
        jobs.every(EVERY, KIND, wanted=self._wanted)

    # --- the job ------------------------------------------------------------------------------

    def _wanted(self, session: Reader) -> bool:
        """Whether anything waits that nobody is under way to, or has been kept long enough."""
        now = datetime.now(UTC)
        return sent.any_overdue(session, now, now - _LATE) or self._any_old(session, now)

    def _any_old(self, session: Reader, now: datetime) -> bool:
        before = now - self._retention
        return sent.any_ended(session, before) or events.any_told(session, before)

    def _carry_out(self, job: JobRecord, progress: Progress) -> Finish:
        """Send what is due, and see to what was left lying."""
        self._tidy()
        until, attempts = time.monotonic() + _SLICE, 0
        while time.monotonic() < until:
            progress(attempts, 0, "sending")
            for delivery, taken in self._take():
                self._under_way.begin(delivery, partial(self._attempt, delivery, taken))
                attempts += 1
            if not self._under_way.wait(_LOOK):
                break

        def finish(session: Writer) -> Mapping[str, Any]:
            # What is still under way ends, and is recorded, without this job.
            self._come_back(session, job, attempts)
            return {"attempts": attempts}

        return finish

    def _come_back(self, session: Writer, job: JobRecord, attempts: int) -> None:
        """Have another job of this kind when the next attempt is due."""
        due, now = sent.next_due(session), datetime.now(UTC)
        if due is not None and not attempts:
            due = max(due, now + _BREATH)  # others are at what is due and could not be taken
        if due is not None and due <= now:
            # Not under the key of what is due now, which this job may hold until it has ended.
            tenant = ensure_tenant(session, SERVICE)
            self._jobs.enqueue(session, tenant, KIND, {}, dedup_key=f"after {job.id}")
        elif due is not None:
            wake(session, self._jobs, due)

    def _tidy(self) -> None:
        """Forget what ended long ago."""
        now = datetime.now(UTC)
        before = now - self._retention
        with self._database.reading() as session:
            if not self._any_old(session, now):
                return
        with self._database.writing() as session:
            sent.prune_deliveries(session, before, limit=_AT_ONCE)
            events.prune_events(session, before, limit=_AT_ONCE)

    def _take(self) -> list[tuple[Delivery, datetime]]:
        """What can be sent now, taken, and until when."""
        now, under_way = datetime.now(UTC), self._under_way.deliveries()
        with self._database.reading() as session:
            chosen = sent.find_due(session, now, room=_ROOM, under_way=under_way)
        if not chosen:
            return []
        until = now + _TAKEN
        with self._database.writing() as session:
            return [(d, until) for d in chosen if sent.take(session, d, until)]

    # --- an attempt ---------------------------------------------------------------------------

    def _attempt(self, delivery: Delivery, taken: datetime) -> None:
        """Send one, and record what came of it."""
        with self._database.reading() as session:
            subscription = subscriptions.find_subscription(session, delivery.subscription_id)
        if subscription is None:
            return
        outcome = self._sent(subscription, delivery)
        with self._database.writing() as session:
            self._record(session, subscription, delivery, taken, outcome)
        if not outcome.succeeded:
            told = f"{subscription.id}, attempt {delivery.attempts + 1}: {outcome.detail[:200]}"
            log.info("delivery %s to subscription %s", delivery.id, told)

    def _sent(self, subscription: Subscription, delivery: Delivery) -> Outcome:
        now = datetime.now(UTC)
        try:
            secrets = [self._secrets.decrypt(subscription.secret)]
            until = subscription.previous_until
            if subscription.previous_secret is not None and until is not None and now < until:
                secrets.append(self._secrets.decrypt(subscription.previous_secret))
        except ModelkinError as error:
            return Outcome(now, 0.0, None, f"not sent: {error}")
        return self._sender.send(subscription.url, delivery.id, delivery.body, secrets)

    def _record(
        self,
        session: Writer,
        subscription: Subscription,
        delivery: Delivery,
        taken: datetime,
        outcome: Outcome,
    ) -> None:
        """What an attempt means for its delivery and its subscription."""
        current = subscriptions.lock_subscription(session, subscription.id)
        if current is None:
            return
        attempts = delivery.attempts + 1
        told: dict[str, Any] = {"attempts": attempts, "log": _logged(delivery, outcome)}
        now = datetime.now(UTC)
        if outcome.succeeded:
            told |= {"state": "succeeded", "due_at": None, "finished_at": now}
        elif outcome.gone or attempts > len(self._schedule):
            told |= {"state": "failed", "due_at": None, "finished_at": now}
        else:
            told["due_at"] = now + self._pause(attempts, outcome)
        if sent.record_attempt(session, delivery, taken, **told):
            fares = _fares(current, outcome, now)
            # In order, so that two who wait for each other's jobs never do so in a circle.
            for due in sorted(filter(None, (told["due_at"], fares.get("paused_until")))):
                wake(session, self._jobs, due)
            subscriptions.change_by_id(session, subscription.id, **fares)
            if fares.get("disabled_reason"):
                log.warning(
                    "subscription %s is disabled: %s", subscription.id, fares["disabled_reason"]
                )

    def _pause(self, attempts: int, outcome: Outcome) -> timedelta:
        """How long until the next attempt: never sooner than the receiver asked for."""
        planned = self._schedule[attempts - 1] * (1 + random.uniform(0, _JITTER))  # noqa: S311
        return max(planned, timedelta(seconds=outcome.retry_after or 0))


class _UnderWay:
    """The attempts that this process makes, a thread each: they outlive the job that began them,
    which would else wait for the slowest receiver of all.
    """

    def __init__(self) -> None:
        self._deliveries: dict[str, Delivery] = {}
        self._changed = threading.Condition()

    def deliveries(self) -> list[Delivery]:
        with self._changed:
            return list(self._deliveries.values())

    def begin(self, delivery: Delivery, attempt: Callable[[], None]) -> None:
        """Make an attempt in the background. One that is cut short is due again by itself."""

        def run() -> None:
            try:
                attempt()
            except ModelkinError as error:
                log.warning("what came of delivery %s is not recorded: %s", delivery.id, error)
            except Exception:
                log.exception("delivery %s met a bug", delivery.id)
            finally:
                with self._changed:
                    del self._deliveries[delivery.id]
                    self._changed.notify_all()

        with self._changed:
            self._deliveries[delivery.id] = delivery
        threading.Thread(target=run, name="deliver", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait until one has ended, or for so long; whether there is any to wait for."""
        with self._changed:
            if not self._deliveries:
                return False
            self._changed.wait(seconds)
            return True


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
