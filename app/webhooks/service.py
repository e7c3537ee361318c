"""Subscriptions: who is told of which events, where, and under which secret.

Secrets are made here, answered once, and kept encrypted. Nothing is sent from here: a ping and a
replay are deliveries like any other. Nor is a URL looked at: whoever brings one has seen whether it
may be sent to, and every attempt is checked anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.auth.records import Tenant
from app.errors import Conflict, SubscriptionDisabled
from app.infra.db.database import Reader, Writer
from app.infra.db.ids import new_id
from app.infra.storage.encryption import Secrets
from app.jobs.service import JobService
from app.webhooks import delivery_repository, repository
from app.webhooks.delivery import TAKEN, new_delivery, wake
from app.webhooks.delivery_repository import Delivery
from app.webhooks.outbox import NEIGHBORS_CHANGED
from app.webhooks.repository import Subscription
from app.webhooks.signing_secrets import outgoing
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page
from modelkin.webhooks import new_secret

__all__ = ["DEFAULT_THRESHOLD", "MOST", "PING", "SubscriptionIn", "SubscriptionService"]

DEFAULT_THRESHOLD: Final = 0.5
MOST: Final = 1000
"""Subscriptions of a tenant."""
PING: Final = "ping"
"""The type of the event that only shows that the way is free."""


@dataclass(frozen=True, slots=True)
class SubscriptionIn:
    """What a subscription is to be; ``threshold`` None for the usual one, where one is needed."""

    url: str
    events: tuple[str, ...]
    space: str | None = None
    model: str | None = None
    tag: str | None = None
    threshold: float | None = None
    description: str | None = None


class SubscriptionService:
    """The use cases of subscriptions.

    Args:
        jobs: where it is enqueued that there is something to send.
        secrets: encrypts.
        now: the time.
    """

    def __init__(
        self,
        jobs: JobService,
        secrets: Secrets,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._jobs = jobs
        self._secrets = secrets
        self._now = now

    def create(
        self, session: Writer, tenant: Tenant, wanted: SubscriptionIn
    ) -> tuple[Subscription, str]:
        """A new subscription, and its secret, which is told this once.

        Raises:
            InvalidParameter: something of it makes no sense together.
            Conflict: the tenant has very many.
            SecretKeyMissing: this service keeps no secrets.
        """
        secret = new_secret()
        now = self._now()
        subscription = _checked(
            Subscription(
                id=new_id(now),
                tenant_id=tenant.id,
                url=wanted.url,
                events=wanted.events,
                space=wanted.space,
                model=wanted.model,
                tag=wanted.tag,
                threshold=wanted.threshold,
                description=wanted.description,
                secret=self._secrets.encrypt(secret),
                previous_secrets=None,
                previous_until=None,
                enabled=True,
                disabled_reason=None,
                failures=0,
                failing_since=None,
                paused_until=None,
                last_success_at=None,
                last_failure=None,
                created_at=now,
                updated_at=now,
            )
        )
        if repository.count_subscriptions(session, tenant) >= MOST:
            raise Conflict(f"there are {MOST:,} subscriptions already: delete some first")
        repository.insert_subscription(session, subscription)
        return subscription, secret

    def get(self, session: Reader, tenant: Tenant, subscription_id: str) -> Subscription:
        """The subscription, or :class:`SubscriptionNotFound`."""
        return repository.get_subscription(session, tenant, subscription_id)

    def list(
        self, session: Reader, tenant: Tenant, *, limit: int, cursor: str | None
    ) -> Page[Subscription]:
        """The tenant's subscriptions, newest first."""
        return repository.list_subscriptions(session, tenant, limit=limit, cursor=cursor)

    def update(
        self, session: Writer, tenant: Tenant, subscription_id: str, given: Mapping[str, Any]
    ) -> Subscription:
        """Replace what is given. Enabling one, or another URL, forgets how the receiver has fared,
        and what waits is sent.

        Raises:
            InvalidParameter: as :meth:`create`.
            SubscriptionNotFound: there is none of this id.
        """
        columns = dict(given)
        current = repository.get_subscription(session, tenant, subscription_id, lock=True)
        events_now = columns.get("events", current.events)
        if NEIGHBORS_CHANGED not in events_now and "threshold" not in columns:
            columns["threshold"] = None
        checked = _checked(replace(current, **columns))
        columns["threshold"] = checked.threshold
        if "enabled" in columns:
            columns["disabled_reason"] = None
        afresh = columns.get("enabled") or checked.url != current.url
        if afresh:
            columns |= _FRESH
            now = self._now()
            delivery_repository.hasten(session, current.id, now, beyond=now + TAKEN)
            if checked.enabled:
                wake(session, self._jobs)
        if all(getattr(current, name) == value for name, value in columns.items()):
            return current
        return repository.change(session, current, **columns, updated_at=self._now())

    def delete(self, session: Writer, tenant: Tenant, subscription_id: str) -> None:
        """Forget a subscription, and what was still to be sent to it."""
        current = repository.get_subscription(session, tenant, subscription_id, lock=True)
        repository.delete_subscription(session, current)

    def rotate(
        self, session: Writer, tenant: Tenant, subscription_id: str, overlap: timedelta
    ) -> tuple[Subscription, str]:
        """A new secret; the one before signs as well, for as long as ``overlap``, and so do those
        before it whose time is not over. Without an overlap they all end.

        Raises:
            Conflict: very many sign already.
            SecretKeyMissing: this service keeps no secrets.
        """
        secret, now = new_secret(), self._now()
        encrypted = self._secrets.encrypt(secret)
        current = repository.get_subscription(session, tenant, subscription_id, lock=True)
        before, until = outgoing(self._secrets, current, overlap, now)
        changed = repository.change(
            session,
            current,
            secret=encrypted,
            previous_secrets=before,
            previous_until=until,
            updated_at=now,
        )
        return changed, secret

    # --- deliveries ---------------------------------------------------------------------------

    def ping(self, session: Writer, tenant: Tenant, subscription_id: str) -> Delivery:
        """An event that only shows that the way is free, on its way.

        Raises:
            SubscriptionDisabled: nothing is sent to it now.
        """
        subscription = _enabled(session, tenant, subscription_id)
        now = self._now()
        told = {
            "type": PING,
            "timestamp": now.isoformat().replace("+00:00", "Z"),
            "data": {"subscription": subscription.id},
        }
        body = json.dumps(told, separators=(",", ":")).encode()
        delivery = new_delivery(subscription, new_id(now), PING, body)
        delivery_repository.insert_deliveries(session, [delivery])
        wake(session, self._jobs)
        return _shown(delivery, subscription)

    def deliveries(
        self,
        session: Reader,
        tenant: Tenant,
        subscription_id: str,
        *,
        limit: int,
        cursor: str | None,
        state: str | None,
    ) -> Page[Delivery]:
        """What was sent and is to be sent, newest first."""
        found = repository.get_subscription(session, tenant, subscription_id)
        page = delivery_repository.list_deliveries(
            session, tenant, found.id, limit=limit, cursor=cursor, state=state
        )
        return replace(page, items=tuple(_shown(delivery, found) for delivery in page.items))

    def delivery(
        self, session: Reader, tenant: Tenant, subscription_id: str, delivery_id: str
    ) -> Delivery:
        """One delivery, or :class:`DeliveryNotFound`."""
        found = repository.get_subscription(session, tenant, subscription_id)
        return _shown(
            delivery_repository.get_delivery(session, tenant, found.id, delivery_id), found
        )

    def replay(
        self, session: Writer, tenant: Tenant, subscription_id: str, delivery_id: str
    ) -> Delivery:
        """Send a delivery once more, under its id, whatever became of it; one that is still on its
        way is left to that.

        Raises:
            SubscriptionDisabled: nothing is sent to it now.
            DeliveryNotFound: there is none of this id.
        """
        subscription = _enabled(session, tenant, subscription_id)
        delivery = delivery_repository.get_delivery(session, tenant, subscription.id, delivery_id)
        if delivery_repository.restart(session, delivery, self._now()):
            wake(session, self._jobs)
        again = delivery_repository.get_delivery(session, tenant, subscription.id, delivery_id)
        return _shown(again, subscription)


_FRESH: Final[Mapping[str, Any]] = {
    "failures": 0,
    "failing_since": None,
    "paused_until": None,
}


def _shown(delivery: Delivery, subscription: Subscription) -> Delivery:
    """The delivery, due when it is really sent: a subscription may be paused, or disabled."""
    due = delivery.due_at
    if due is not None:
        due = max(due, subscription.paused_until or due) if subscription.enabled else None
    return replace(delivery, due_at=due)


def _checked(subscription: Subscription) -> Subscription:
    """The subscription with the threshold that it needs, unless it makes no sense."""
    if NEIGHBORS_CHANGED in subscription.events:
        if subscription.threshold is None:
            return replace(subscription, threshold=DEFAULT_THRESHOLD)
    elif subscription.threshold is not None:
        raise InvalidParameter(
            f"a threshold is of {NEIGHBORS_CHANGED}, which is not among the events",
            field="threshold",
        )
    return subscription


def _enabled(session: Writer, tenant: Tenant, subscription_id: str) -> Subscription:
    found = repository.get_subscription(session, tenant, subscription_id)
    if not found.enabled:
        why = found.disabled_reason or "somebody disabled it"
        raise SubscriptionDisabled(
            f"the subscription is disabled ({why}): enable it first, with PATCH"
        )
    return found
