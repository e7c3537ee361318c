"""Subscriptions: the events that are sent to a URL, signed with a secret.

Secrets are created here, answered once, and stored encrypted. A ping and a replay are deliveries
like any other. The endpoints check a URL before it comes here, and every attempt is checked again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from app.infra.db.database import Reader, Writer
from app.infra.db.ids import new_id
from app.infra.errors import SubscriptionDisabled
from app.infra.storage.encryption import Secrets
from app.jobs.service import JobService
from app.tenancy.auth.records import Tenant
from app.tenancy.quotas.service import QuotaService
from app.webhooks.delivery import DELIVERY_LEASE, new_delivery, schedule_sending
from app.webhooks.outbox import NEIGHBORS_CHANGED
from app.webhooks.repositories import deliveries as delivery_repository
from app.webhooks.repositories import subscriptions
from app.webhooks.repositories.deliveries import Delivery
from app.webhooks.repositories.subscriptions import Subscription
from app.webhooks.signing_secrets import previous_secrets
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page
from modelkin.webhooks import new_secret

__all__ = [
    "DEFAULT_THRESHOLD",
    "PING",
    "SubscriptionIn",
    "SubscriptionService",
]

DEFAULT_THRESHOLD: Final = 0.5
PING: Final = "ping"
"""The type of the event that only tests the connection to the receiver."""


@dataclass(frozen=True, slots=True)
class SubscriptionIn:
    """The fields of a new subscription; a ``threshold`` of None is the default one, if needed."""

    url: str
    events: tuple[str, ...]
    space: str | None = None
    model: str | None = None
    tag: str | None = None
    threshold: float | None = None
    description: str | None = None


class SubscriptionService:
    """Creates, changes and deletes subscriptions; sends pings and replays deliveries.

    Args:
        jobs: the queue, for the jobs that send deliveries.
        secrets: encrypts the signing secrets.
        now: returns the present moment, in UTC.
    """

    def __init__(
        self,
        jobs: JobService,
        secrets: Secrets,
        quotas: QuotaService,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._jobs = jobs
        self._secrets = secrets
        self._quotas = quotas
        self._now = now

    def create(
        self, session: Writer, tenant: Tenant, wanted: SubscriptionIn
    ) -> tuple[Subscription, str]:
        """Create a subscription; returns it with its secret, which is shown only once.

        Raises:
            InvalidParameter: the fields contradict each other.
            QuotaExceeded: the tenant has as many subscriptions as it may.
            SecretKeyMissing: there is no key to encrypt its secret with.
        """
        secret = new_secret()
        now = self._now()
        subscription = _with_threshold(
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
        count = partial(subscriptions.count_subscriptions, session, tenant)
        self._quotas.require(session, tenant.id, "subscriptions", count)
        subscriptions.insert_subscription(session, subscription)
        return subscription, secret

    def get(self, session: Reader, tenant: Tenant, subscription_id: str) -> Subscription:
        """The subscription, or :class:`SubscriptionNotFound`."""
        return subscriptions.get_subscription(session, tenant, subscription_id)

    def list(
        self, session: Reader, tenant: Tenant, *, limit: int, cursor: str | None
    ) -> Page[Subscription]:
        """The tenant's subscriptions, newest first."""
        return subscriptions.list_subscriptions(session, tenant, limit=limit, cursor=cursor)

    def update(
        self, session: Writer, tenant: Tenant, subscription_id: str, given: Mapping[str, Any]
    ) -> Subscription:
        """Change the given fields.

        Enabling a subscription, or changing its URL, resets its failures and sends pending
        deliveries.

        Raises:
            InvalidParameter: a field is invalid, as for :meth:`create`.
            SubscriptionNotFound: there is no subscription with this id.
        """
        columns = dict(given)
        current = subscriptions.get_subscription(session, tenant, subscription_id, lock=True)
        events_now = columns.get("events", current.events)
        if NEIGHBORS_CHANGED not in events_now and "threshold" not in columns:
            columns["threshold"] = None
        checked = _with_threshold(replace(current, **columns))
        columns["threshold"] = checked.threshold
        if "enabled" in columns:
            columns["disabled_reason"] = None
        resets = columns.get("enabled") or checked.url != current.url
        if resets:
            columns |= _HEALTHY
            now = self._now()
            delivery_repository.make_due(session, current.id, now, beyond=now + DELIVERY_LEASE)
            if checked.enabled:
                schedule_sending(session, self._jobs)
        if all(getattr(current, name) == value for name, value in columns.items()):
            return current
        return subscriptions.change(session, current, **columns, updated_at=self._now())

    def delete(self, session: Writer, tenant: Tenant, subscription_id: str) -> None:
        """Delete a subscription with its pending deliveries."""
        current = subscriptions.get_subscription(session, tenant, subscription_id, lock=True)
        subscriptions.delete_subscription(session, current)

    def rotate(
        self, session: Writer, tenant: Tenant, subscription_id: str, overlap: timedelta
    ) -> tuple[Subscription, str]:
        """Create a new secret; the previous one still signs during ``overlap``.

        Earlier secrets that have not expired do so, too. Without an overlap all of them expire now.

        Raises:
            Conflict: too many secrets sign already.
            SecretKeyMissing: there is no key to encrypt the secret with.
        """
        secret, now = new_secret(), self._now()
        encrypted = self._secrets.encrypt(secret)
        current = subscriptions.get_subscription(session, tenant, subscription_id, lock=True)
        before, until = previous_secrets(self._secrets, current, overlap, now)
        changed = subscriptions.change(
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
        """Send an event that only tests the connection to the receiver.

        Raises:
            SubscriptionDisabled: the subscription is disabled.
        """
        subscription = _get_enabled(session, tenant, subscription_id)
        now = self._now()
        payload = {
            "type": PING,
            "timestamp": now.isoformat().replace("+00:00", "Z"),
            "data": {"subscription": subscription.id},
        }
        body = json.dumps(payload, separators=(",", ":")).encode()
        delivery = new_delivery(subscription, new_id(now), PING, body)
        delivery_repository.insert_deliveries(session, [delivery])
        schedule_sending(session, self._jobs)
        return _with_real_due_time(delivery, subscription)

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
        """The deliveries of a subscription, pending ones included, newest first."""
        found = subscriptions.get_subscription(session, tenant, subscription_id)
        page = delivery_repository.list_deliveries(
            session, tenant, found.id, limit=limit, cursor=cursor, state=state
        )
        return replace(
            page, items=tuple(_with_real_due_time(delivery, found) for delivery in page.items)
        )

    def delivery(
        self, session: Reader, tenant: Tenant, subscription_id: str, delivery_id: str
    ) -> Delivery:
        """Return one delivery, or raise :class:`DeliveryNotFound`."""
        found = subscriptions.get_subscription(session, tenant, subscription_id)
        return _with_real_due_time(
            delivery_repository.get_delivery(session, tenant, found.id, delivery_id), found
        )

    def replay(
        self, session: Writer, tenant: Tenant, subscription_id: str, delivery_id: str
    ) -> Delivery:
        """Send a finished delivery again under its id. A pending one stays as it is.

        Raises:
            SubscriptionDisabled: the subscription is disabled.
            DeliveryNotFound: there is no delivery with this id.
        """
        subscription = _get_enabled(session, tenant, subscription_id)
        delivery = delivery_repository.get_delivery(session, tenant, subscription.id, delivery_id)
        if delivery_repository.restart(session, delivery, self._now()):
            schedule_sending(session, self._jobs)
        again = delivery_repository.get_delivery(session, tenant, subscription.id, delivery_id)
        return _with_real_due_time(again, subscription)


_HEALTHY: Final[Mapping[str, Any]] = {
    "failures": 0,
    "failing_since": None,
    "paused_until": None,
}


def _with_real_due_time(delivery: Delivery, subscription: Subscription) -> Delivery:
    """The delivery with its real next attempt, since its subscription may be paused or disabled."""
    due = delivery.due_at
    if due is not None:
        due = max(due, subscription.paused_until or due) if subscription.enabled else None
    return replace(delivery, due_at=due)


def _with_threshold(subscription: Subscription) -> Subscription:
    """The subscription with the threshold that it needs, or :class:`InvalidParameter`."""
    if NEIGHBORS_CHANGED in subscription.events:
        if subscription.threshold is None:
            return replace(subscription, threshold=DEFAULT_THRESHOLD)
    elif subscription.threshold is not None:
        raise InvalidParameter(
            f"a threshold applies to {NEIGHBORS_CHANGED}, which is not among the events",
            field="threshold",
        )
    return subscription


def _get_enabled(session: Writer, tenant: Tenant, subscription_id: str) -> Subscription:
    found = subscriptions.get_subscription(session, tenant, subscription_id)
    if not found.enabled:
        why = found.disabled_reason or "a client disabled it"
        raise SubscriptionDisabled(
            f"the subscription is disabled ({why}): enable it first, with PATCH"
        )
    return found
