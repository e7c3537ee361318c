"""Every query about deliveries of events: what is to be sent, when, and what came of it.

A delivery is taken by moving the moment at which it is due: whoever moved it sends it, and if
nothing is heard of that one it is due again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, update

from app.stores.ports import Tenant
from app.stores.sql.cursor import decode_cursor, encode_cursor
from app.stores.sql.database import Reader, Writer
from app.stores.sql.event_tables import SentRow, SubscriptionRow
from modelkin.errors import DeliveryNotFound
from modelkin.types import Page

__all__ = [
    "Delivery",
    "Room",
    "any_ended",
    "any_overdue",
    "find_due",
    "get_delivery",
    "insert_deliveries",
    "list_deliveries",
    "next_due",
    "prune_deliveries",
    "record_attempt",
    "restart",
    "take",
]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one subscription.

    Attributes:
        event_id: stable, and the same for all who are told.
        body: what is sent, byte by byte.
        state: ``pending``, ``succeeded`` or ``failed``.
        attempts: made since it began, or was begun again.
        log: of the last attempts ``{"at", "seconds", "status", "detail"}``, the oldest first.
        due_at: when the next attempt is.
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


@dataclass(frozen=True, slots=True)
class Room:
    """How many attempts there may be at a time: in all, for a tenant, for a subscription."""

    all: int
    each_tenant: int
    each: int


_DELIVERY = tuple(Delivery.__dataclass_fields__)


def insert_deliveries(session: Writer, deliveries: Sequence[Delivery]) -> int:
    """Those of the deliveries that there are not yet, of subscriptions that still exist."""
    inserted = 0
    for delivery in deliveries:
        known = select(SentRow.id).where(
            SentRow.subscription_id == delivery.subscription_id,
            SentRow.event_id == delivery.event_id,
            SentRow.type == delivery.type,
        )
        # Deleting a subscription waits for this change, which holds its row.
        there = select(SubscriptionRow.id).where(SubscriptionRow.id == delivery.subscription_id)
        there = there.with_for_update(read=True, key_share=True)
        if session.scalar(there) is not None and session.scalar(known) is None:
            row = {name: getattr(delivery, name) for name in _DELIVERY}
            session.execute(insert(SentRow), [row])
            inserted += 1
    return inserted


def get_delivery(
    session: Reader, tenant: Tenant, subscription_id: str, delivery_id: str
) -> Delivery:
    """The delivery, or :class:`DeliveryNotFound`."""
    query = select(SentRow).where(
        SentRow.id == delivery_id,
        SentRow.subscription_id == subscription_id,
        SentRow.tenant_id == tenant.id,
    )
    row = session.scalar(query.execution_options(populate_existing=True))
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
    query = select(SentRow).where(
        SentRow.subscription_id == subscription_id, SentRow.tenant_id == tenant.id
    )
    if cursor is not None:
        query = query.where(SentRow.id < decode_cursor(cursor))
    if state is not None:
        query = query.where(SentRow.state == state)
    rows = session.scalars(query.order_by(SentRow.id.desc()).limit(limit + 1)).all()
    more = encode_cursor(rows[limit - 1].id) if len(rows) > limit else None
    return Page(tuple(_delivery(row) for row in rows[:limit]), more)


def find_due(
    session: Reader, now: datetime, *, room: Room, under_way: Collection[Delivery] = ()
) -> list[Delivery]:
    """What is due and there is room for, the longest first.

    Args:
        room: how many may be under way at a time.
        under_way: those that are.
    """
    busy = Counter(delivery.subscription_id for delivery in under_way)
    tenants = Counter(delivery.tenant_id for delivery in under_way)
    full = sorted(name for name, count in busy.items() if count >= room.each)
    full_tenants = sorted(name for name, count in tenants.items() if count >= room.each_tenant)
    of_subscription = func.row_number().over(
        partition_by=SentRow.subscription_id, order_by=(SentRow.due_at, SentRow.id)
    )
    waiting = (
        select(SentRow.id, SentRow.tenant_id, SentRow.due_at, of_subscription.label("place"))
        .join(SubscriptionRow, SubscriptionRow.id == SentRow.subscription_id)
        .where(
            _due(now),
            SentRow.subscription_id.not_in(full),
            SentRow.tenant_id.not_in(full_tenants),
        )
        .subquery()
    )
    # Counted among what its subscription has room for: so one tenant's many hide nobody else's.
    of_tenant = func.row_number().over(
        partition_by=waiting.c.tenant_id, order_by=(waiting.c.due_at, waiting.c.id)
    )
    first = (
        select(waiting.c.id, of_tenant.label("place"))
        .where(waiting.c.place <= room.each)
        .subquery()
    )
    query = (
        select(SentRow)
        .join(first, first.c.id == SentRow.id)
        .where(first.c.place <= room.each_tenant)
        .order_by(SentRow.due_at, SentRow.id)
        .limit(2 * room.all)
    )
    chosen: list[Delivery] = []
    for row in session.scalars(query):
        fits = busy[row.subscription_id] < room.each and tenants[row.tenant_id] < room.each_tenant
        if fits and len(under_way) + len(chosen) < room.all:
            busy[row.subscription_id] += 1
            tenants[row.tenant_id] += 1
            chosen.append(_delivery(row))
    return chosen


def take(session: Writer, delivery: Delivery, until: datetime) -> bool:
    """Take a delivery for an attempt; False where somebody else has, or it is not due any more."""
    return _change(session, _is(delivery), due_at=until)


def record_attempt(session: Writer, delivery: Delivery, taken: datetime, **columns: Any) -> bool:
    """What came of an attempt; False where others took it for lost, or it was deleted.

    Args:
        taken: until when it had been taken.
        columns: what is new.
    """
    held = (SentRow.id == delivery.id) & (SentRow.due_at == taken)
    return _change(session, held, **columns)


def restart(session: Writer, delivery: Delivery, now: datetime) -> bool:
    """Send it again from the beginning, as soon as may be; False where it is on its way."""
    ended = (SentRow.id == delivery.id) & (SentRow.state != "pending")
    return _change(session, ended, state="pending", attempts=0, due_at=now, finished_at=None)


def next_due(session: Reader) -> datetime | None:
    """When the next attempt of any delivery is; None where none is to be made."""
    later = func.max if session.get_bind().dialect.name == "sqlite" else func.greatest
    at = later(SentRow.due_at, func.coalesce(SubscriptionRow.paused_until, SentRow.due_at))
    query = (
        select(SentRow.due_at, SubscriptionRow.paused_until)
        .join(SubscriptionRow, SubscriptionRow.id == SentRow.subscription_id)
        .where(SentRow.state == "pending", SubscriptionRow.enabled)
        .order_by(at)
        .limit(1)
    )
    row = session.execute(query).first()
    return None if row is None else max(at for at in row if at is not None)


def any_overdue(session: Reader, now: datetime, before: datetime) -> bool:
    """Whether there is anything that should have been sent before some moment."""
    late = (
        select(SentRow.id)
        .join(SubscriptionRow, SubscriptionRow.id == SentRow.subscription_id)
        .where(_due(now), SentRow.due_at < before)
    )
    return session.scalar(late.limit(1)) is not None


def any_ended(session: Reader, before: datetime) -> bool:
    """Whether any delivery ended before a moment."""
    return (
        session.scalar(select(SentRow.id).where(SentRow.finished_at < before).limit(1)) is not None
    )


def prune_deliveries(session: Writer, before: datetime, *, limit: int) -> int:
    """Forget deliveries that ended before a moment, at most so many; how many."""
    old = select(SentRow.id).where(SentRow.finished_at < before).limit(limit)
    gone = session.execute(
        delete(SentRow)
        .where(SentRow.id.in_(old.scalar_subquery()))
        .returning(SentRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


def _due(now: datetime) -> ColumnElement[bool]:
    return and_(
        SentRow.state == "pending",
        SentRow.due_at <= now,
        SubscriptionRow.enabled,
        or_(SubscriptionRow.paused_until.is_(None), SubscriptionRow.paused_until <= now),
    )


def _is(delivery: Delivery) -> ColumnElement[bool]:
    return and_(SentRow.id == delivery.id, SentRow.due_at == delivery.due_at)


def _change(session: Writer, condition: ColumnElement[bool], **values: Any) -> bool:
    done = session.execute(
        update(SentRow)
        .where(condition)
        .values(**values)
        .returning(SentRow.id)
        .execution_options(synchronize_session=False)
    )
    return done.first() is not None


def _delivery(row: SentRow) -> Delivery:
    return Delivery(**{name: getattr(row, name) for name in _DELIVERY})
