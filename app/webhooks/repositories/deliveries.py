"""Queries about webhook deliveries: which are due, and the outcomes of their attempts.

A worker reserves a delivery by postponing the time at which it is due. Where that worker dies, the
delivery becomes due again at that time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    ScalarSelect,
    Select,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute

from app.infra.db.database import Reader, Writer
from app.infra.db.excess import excess_of
from app.infra.db.ids import is_id
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.tables.webhooks import SubscriptionRow, WebhookDeliveryRow
from app.infra.errors import DeliveryNotFound
from app.tenancy.auth.records import Tenant
from modelkin.types.paging import Page

__all__ = [
    "Delivery",
    "ConcurrencyLimits",
    "any_expired",
    "count_of_tenant",
    "find_due",
    "get_delivery",
    "make_due",
    "insert_deliveries",
    "list_deliveries",
    "prune_deliveries",
    "prune_oldest",
    "record_attempt",
    "restart",
    "reserve",
]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one subscription.

    Attributes:
        event_id: the stable id of the event, the same for all subscriptions.
        body: the bytes that are sent.
        state: ``pending``, ``succeeded`` or ``failed``.
        attempts: the number of attempts since it was created or last replayed.
        log: the last attempts as ``{"at", "seconds", "status", "detail"}``, oldest first.
        due_at: the time of the next attempt.
    """

    id: str
    tenant_id: int
    subscription_id: str
    event_id: str
    type: str
    body: bytes
    state: str
    attempts: int
    log: list[dict[str, Any]]
    due_at: datetime | None
    created_at: datetime
    finished_at: datetime | None

    @property
    def model(self) -> str | None:
        """The model that it is about; None for an event of a space, and for a ping."""
        data = json.loads(self.body).get("data")
        model = data.get("model") if isinstance(data, dict) else None
        return model if isinstance(model, str) else None


@dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """The most attempts at a time: in all, for one tenant, and for one subscription."""

    total: int
    per_tenant: int
    per_subscription: int


_DELIVERY = tuple(Delivery.__dataclass_fields__)


def insert_deliveries(session: Writer, deliveries: Sequence[Delivery]) -> int:
    """Insert the deliveries that are new and whose subscription still exists; returns how many."""
    inserted = 0
    for delivery in deliveries:
        known = select(WebhookDeliveryRow.id).where(
            WebhookDeliveryRow.subscription_id == delivery.subscription_id,
            WebhookDeliveryRow.event_id == delivery.event_id,
            WebhookDeliveryRow.type == delivery.type,
        )
        # The lock on the subscription's row delays its deletion until this transaction ends.
        there = select(SubscriptionRow.id).where(SubscriptionRow.id == delivery.subscription_id)
        there = there.with_for_update(read=True, key_share=True)
        if session.scalar(there) is not None and session.scalar(known) is None:
            row = {name: getattr(delivery, name) for name in _DELIVERY}
            session.execute(insert(WebhookDeliveryRow), [row])
            inserted += 1
    return inserted


def get_delivery(
    session: Reader, tenant: Tenant, subscription_id: str, delivery_id: str
) -> Delivery:
    """The delivery, or :class:`DeliveryNotFound`."""
    query = select(WebhookDeliveryRow).where(
        WebhookDeliveryRow.id == delivery_id,
        WebhookDeliveryRow.subscription_id == subscription_id,
        WebhookDeliveryRow.tenant_id == tenant.id,
    )
    query = query.execution_options(populate_existing=True)
    row = session.scalar(query) if is_id(delivery_id) else None
    if row is None:
        raise DeliveryNotFound("there is no such delivery of this subscription")
    return _delivery(row)


def list_deliveries(
    session: Reader,
    tenant: Tenant,
    subscription_id: str,
    *,
    limit: int,
    cursor: str | None,
    state: str | None,
) -> Page[Delivery]:
    """The deliveries of a subscription, newest first; of a state where one is given."""
    query = select(WebhookDeliveryRow).where(
        WebhookDeliveryRow.subscription_id == subscription_id,
        WebhookDeliveryRow.tenant_id == tenant.id,
    )
    if cursor is not None:
        query = query.where(WebhookDeliveryRow.id < decode_cursor(cursor))
    if state is not None:
        query = query.where(WebhookDeliveryRow.state == state)
    query = query.order_by(WebhookDeliveryRow.id.desc())
    count, more = page_length(session, query, limit)
    rows = session.scalars(query.limit(count)).all()
    return page_of((_delivery(row) for row in rows), more, lambda delivery: delivery.id)


def find_due(
    session: Reader,
    now: datetime,
    *,
    limits: ConcurrencyLimits,
    in_flight: Collection[Delivery] = (),
    excluded: Collection[str] = (),
) -> list[Delivery]:
    """Find the due deliveries that the limits allow, the longest waiting first.

    The cost grows with the subscriptions that have pending deliveries, not with the deliveries.

    Args:
        limits: the most deliveries in flight at a time.
        excluded: subscriptions to leave out.
    """
    busy = Counter(delivery.subscription_id for delivery in in_flight)
    tenants = Counter(delivery.tenant_id for delivery in in_flight)
    full = {name for name, count in busy.items() if count >= limits.per_subscription}
    full_tenants = [name for name, count in tenants.items() if count >= limits.per_tenant]
    chosen: list[Delivery] = []
    if len(in_flight) >= limits.total:
        return chosen
    for subscription_id, tenant_id in session.execute(
        _waiting_subscriptions(now, limits, full.union(excluded), full_tenants)
    ).all():
        free = min(
            limits.per_subscription - busy[subscription_id],
            limits.per_tenant - tenants[tenant_id],
            limits.total - len(in_flight) - len(chosen),
        )
        if free > 0:
            found = _oldest_due(session, subscription_id, now, free)
            tenants[tenant_id] += len(found)
            chosen += found
    return chosen


def reserve(session: Writer, delivery: Delivery, until: datetime) -> bool:
    """Reserve a delivery for an attempt; False if another worker has, or it is no longer due."""
    return _change(session, _is(delivery), due_at=until)


def record_attempt(session: Writer, delivery: Delivery, taken: datetime, **columns: Any) -> bool:
    """Record an attempt; False if its lease has expired, or the delivery was deleted.

    Args:
        taken: the end of its lease.
        columns: the new values.
    """
    held = (WebhookDeliveryRow.id == delivery.id) & (WebhookDeliveryRow.due_at == taken)
    return _change(session, held, **columns)


def restart(session: Writer, delivery: Delivery, now: datetime) -> bool:
    """Make a finished delivery due again, with all its attempts; False if it is pending."""
    ended = (WebhookDeliveryRow.id == delivery.id) & (WebhookDeliveryRow.state != "pending")
    return _change(session, ended, state="pending", attempts=0, due_at=now, finished_at=None)


def make_due(session: Writer, subscription_id: str, now: datetime, *, beyond: datetime) -> bool:
    """Make the pending deliveries of a subscription due now; whether there were any.

    Args:
        beyond: deliveries due by then stay as they are: they may be in flight.
    """
    return _change(
        session,
        and_(
            WebhookDeliveryRow.subscription_id == subscription_id,
            WebhookDeliveryRow.due_at > beyond,
        ),
        due_at=now,
    )


def any_expired(session: Reader, before: datetime) -> bool:
    """Whether there is anything for :func:`prune_deliveries`."""
    ended = select(WebhookDeliveryRow.id).where(WebhookDeliveryRow.finished_at < before).limit(1)
    return session.scalar(ended) is not None or _disabled_subscription(session, before) is not None


def prune_deliveries(session: Writer, before: datetime, *, limit: int) -> int:
    """Delete deliveries that ended before a moment, or were due before it at a disabled
    subscription: at most ``limit`` of each; returns how many.
    """
    gone = _delete_some(session, WebhookDeliveryRow.finished_at < before, limit)
    neglected = _disabled_subscription(session, before)
    if neglected is not None:
        waiting = and_(
            WebhookDeliveryRow.subscription_id == neglected, WebhookDeliveryRow.due_at < before
        )
        gone += _delete_some(session, waiting, limit)
    return gone


def count_of_tenant(session: Reader, tenant_id: int) -> int:
    """Return the number of deliveries of a tenant."""
    return session.scalars(_count_query(tenant_id)).one()


def prune_oldest(session: Writer, kept: int, limit: int, tenant_id: int) -> tuple[int, int]:
    """Delete at most ``limit`` of a tenant's deliveries beyond ``kept``, the finished ones first.

    Returns the number of deleted deliveries, and how many of these were pending.
    """
    finished, pending = WebhookDeliveryRow.finished_at, WebhookDeliveryRow.finished_at.is_(None)
    of, counted = WebhookDeliveryRow.tenant_id == tenant_id, _count_query(tenant_id)
    done = _delete_some(session, of & ~pending, excess_of(counted, kept, limit), finished)
    if done == limit:
        return done, 0
    excess = excess_of(counted, kept, limit - done)
    waiting = _delete_some(session, of & pending, excess, WebhookDeliveryRow.id)
    return done + waiting, waiting


def _count_query(tenant_id: int) -> Select[int]:
    return select(func.count()).where(WebhookDeliveryRow.tenant_id == tenant_id)


def _disabled_subscription(session: Reader, before: datetime) -> str | None:
    """A disabled subscription with a delivery that was due before a moment."""
    query = select(SubscriptionRow.id).where(
        SubscriptionRow.enabled.is_(False), _first_due() < before
    )
    return session.scalar(query.limit(1))


def _delete_some(
    session: Writer,
    condition: ColumnElement[bool],
    limit: int | ScalarSelect[int],
    order: InstrumentedAttribute[Any] | None = None,
) -> int:
    some = select(WebhookDeliveryRow.id).where(condition).order_by(order).limit(limit)
    gone = session.execute(
        delete(WebhookDeliveryRow)
        .where(WebhookDeliveryRow.id.in_(some.scalar_subquery()))
        .returning(WebhookDeliveryRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


def _first_due() -> ScalarSelect[datetime | None]:
    """The earliest due time of a subscription: one lookup in the index, whatever its length."""
    due = select(func.min(WebhookDeliveryRow.due_at)).where(
        WebhookDeliveryRow.due_at.is_not(None),
        WebhookDeliveryRow.subscription_id == SubscriptionRow.id,
    )
    return due.correlate(SubscriptionRow).scalar_subquery()


def _waiting_subscriptions(
    now: datetime,
    limits: ConcurrencyLimits,
    excluded: Collection[str],
    full_tenants: Collection[int],
) -> Select[str, int]:
    """The subscriptions with due deliveries, and their tenants; those that wait longest first.

    Each tenant gets at most as many as its limit.
    """
    waits = WebhookDeliveryRow.due_at.is_not(None)
    # A loose index scan: from one subscription to the next, past the deliveries of each.
    lowest = select(func.min(WebhookDeliveryRow.subscription_id).label("id")).where(waits)
    some = lowest.cte("waiting", recursive=True)
    after = lowest.where(WebhookDeliveryRow.subscription_id > some.c.id)
    waiting = some.union_all(
        select(after.correlate(some).scalar_subquery()).where(some.c.id.is_not(None))
    )
    paused = SubscriptionRow.paused_until
    candidates = (
        select(SubscriptionRow.id, SubscriptionRow.tenant_id, _first_due().label("due_at"))
        .join(waiting, waiting.c.id == SubscriptionRow.id)
        .where(
            SubscriptionRow.enabled,
            or_(paused.is_(None), paused <= now),
            SubscriptionRow.id.not_in(excluded),
            SubscriptionRow.tenant_id.not_in(full_tenants),
        )
        .subquery()
    )
    longest = candidates.c.due_at, candidates.c.id
    place = func.row_number().over(partition_by=candidates.c.tenant_id, order_by=longest)
    ranked = select(candidates, place.label("place")).where(candidates.c.due_at <= now).subquery()
    return (
        select(ranked.c.id, ranked.c.tenant_id)
        .where(ranked.c.place <= limits.per_tenant)
        .order_by(ranked.c.due_at, ranked.c.id)
        .limit(2 * limits.total)
    )


def _oldest_due(session: Reader, subscription_id: str, now: datetime, limit: int) -> list[Delivery]:
    query = select(WebhookDeliveryRow).where(
        WebhookDeliveryRow.subscription_id == subscription_id, WebhookDeliveryRow.due_at <= now
    )
    rows = session.scalars(
        query.order_by(WebhookDeliveryRow.due_at, WebhookDeliveryRow.id).limit(limit)
    )
    return [_delivery(row) for row in rows]


def _is(delivery: Delivery) -> ColumnElement[bool]:
    return and_(WebhookDeliveryRow.id == delivery.id, WebhookDeliveryRow.due_at == delivery.due_at)


def _change(session: Writer, condition: ColumnElement[bool], **values: Any) -> bool:
    done = session.execute(
        update(WebhookDeliveryRow)
        .where(condition)
        .values(**values)
        .returning(WebhookDeliveryRow.id)
        .execution_options(synchronize_session=False)
    )
    return done.first() is not None


def _delivery(row: WebhookDeliveryRow) -> Delivery:
    return Delivery(**{name: getattr(row, name) for name in _DELIVERY})
