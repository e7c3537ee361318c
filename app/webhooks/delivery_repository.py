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

from app.auth.records import Tenant
from app.errors import DeliveryNotFound
from app.infra.db.database import Reader, Writer
from app.infra.db.ids import is_id
from app.infra.db.pagination import decode_cursor, encode_cursor
from app.infra.db.tables.webhooks import SubscriptionRow, WebhookDeliveryRow
from modelkin.types.paging import Page

__all__ = [
    "Delivery",
    "FreeSlots",
    "any_old",
    "find_due",
    "get_delivery",
    "hasten",
    "insert_deliveries",
    "list_deliveries",
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
class FreeSlots:
    """How many attempts there may be at a time: in all, for a tenant, for a subscription."""

    all: int
    each_tenant: int
    each: int


_DELIVERY = tuple(Delivery.__dataclass_fields__)


def insert_deliveries(session: Writer, deliveries: Sequence[Delivery]) -> int:
    """Those of the deliveries that there are not yet, of subscriptions that still exist."""
    inserted = 0
    for delivery in deliveries:
        known = select(WebhookDeliveryRow.id).where(
            WebhookDeliveryRow.subscription_id == delivery.subscription_id,
            WebhookDeliveryRow.event_id == delivery.event_id,
            WebhookDeliveryRow.type == delivery.type,
        )
        # Deleting a subscription waits for this change, which holds its row.
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
    rows = session.scalars(query.order_by(WebhookDeliveryRow.id.desc()).limit(limit + 1)).all()
    more = encode_cursor(rows[limit - 1].id) if len(rows) > limit else None
    return Page(tuple(_delivery(row) for row in rows[:limit]), more)


def find_due(
    session: Reader,
    now: datetime,
    *,
    room: FreeSlots,
    under_way: Collection[Delivery] = (),
    without: Collection[str] = (),
) -> list[Delivery]:
    """What is due and there is room for: whose has waited longest comes first.

    It costs as much as there are subscriptions that anything waits for, however much that is.

    Args:
        room: how many may be under way at a time.
        under_way: those that are.
        without: subscriptions to leave out.
    """
    busy = Counter(delivery.subscription_id for delivery in under_way)
    tenants = Counter(delivery.tenant_id for delivery in under_way)
    full = {name for name, count in busy.items() if count >= room.each}
    full_tenants = [name for name, count in tenants.items() if count >= room.each_tenant]
    chosen: list[Delivery] = []
    if len(under_way) >= room.all:
        return chosen
    for subscription_id, tenant_id in session.execute(
        _who_waits(now, room, full.union(without), full_tenants)
    ).all():
        free = min(
            room.each - busy[subscription_id],
            room.each_tenant - tenants[tenant_id],
            room.all - len(under_way) - len(chosen),
        )
        if free > 0:
            found = _oldest_due(session, subscription_id, now, free)
            tenants[tenant_id] += len(found)
            chosen += found
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
    held = (WebhookDeliveryRow.id == delivery.id) & (WebhookDeliveryRow.due_at == taken)
    return _change(session, held, **columns)


def restart(session: Writer, delivery: Delivery, now: datetime) -> bool:
    """Send it again from the beginning, as soon as may be; False where it is on its way."""
    ended = (WebhookDeliveryRow.id == delivery.id) & (WebhookDeliveryRow.state != "pending")
    return _change(session, ended, state="pending", attempts=0, due_at=now, finished_at=None)


def hasten(session: Writer, subscription_id: str, now: datetime, *, beyond: datetime) -> bool:
    """Let all that waits for a subscription be due at once; whether anything did.

    Args:
        beyond: what is due by then is left as it is: it may be under way.
    """
    return _change(
        session,
        and_(
            WebhookDeliveryRow.subscription_id == subscription_id,
            WebhookDeliveryRow.due_at > beyond,
        ),
        due_at=now,
    )


def any_old(session: Reader, before: datetime) -> bool:
    """Whether there is anything for :func:`prune_deliveries`."""
    ended = select(WebhookDeliveryRow.id).where(WebhookDeliveryRow.finished_at < before).limit(1)
    return session.scalar(ended) is not None or _neglected(session, before) is not None


def prune_deliveries(session: Writer, before: datetime, *, limit: int) -> int:
    """Forget deliveries that ended before a moment, or were due before it for a subscription that
    is disabled: at most so many of each; how many.
    """
    gone = _forget(session, WebhookDeliveryRow.finished_at < before, limit)
    neglected = _neglected(session, before)
    if neglected is not None:
        waiting = and_(
            WebhookDeliveryRow.subscription_id == neglected, WebhookDeliveryRow.due_at < before
        )
        gone += _forget(session, waiting, limit)
    return gone


def _neglected(session: Reader, before: datetime) -> str | None:
    """A subscription that is disabled, and was so when something was due to it."""
    query = select(SubscriptionRow.id).where(
        SubscriptionRow.enabled.is_(False), _first_due() < before
    )
    return session.scalar(query.limit(1))


def _forget(session: Writer, condition: ColumnElement[bool], limit: int) -> int:
    some = select(WebhookDeliveryRow.id).where(condition).limit(limit)
    gone = session.execute(
        delete(WebhookDeliveryRow)
        .where(WebhookDeliveryRow.id.in_(some.scalar_subquery()))
        .returning(WebhookDeliveryRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


def _first_due() -> ScalarSelect[datetime | None]:
    """When anything is due to a subscription first: a look into the index, however much waits."""
    due = select(func.min(WebhookDeliveryRow.due_at)).where(
        WebhookDeliveryRow.due_at.is_not(None),
        WebhookDeliveryRow.subscription_id == SubscriptionRow.id,
    )
    return due.correlate(SubscriptionRow).scalar_subquery()


def _who_waits(
    now: datetime, room: FreeSlots, without: Collection[str], full_tenants: Collection[int]
) -> Select[str, int]:
    """The subscriptions that anything is due to, and whose they are: no more of a tenant than there
    is room for, the one that has waited longest first.
    """
    waits = WebhookDeliveryRow.due_at.is_not(None)
    # From one subscription to the next along the index, past all that waits for each.
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
            SubscriptionRow.id.not_in(without),
            SubscriptionRow.tenant_id.not_in(full_tenants),
        )
        .subquery()
    )
    longest = candidates.c.due_at, candidates.c.id
    place = func.row_number().over(partition_by=candidates.c.tenant_id, order_by=longest)
    ranked = select(candidates, place.label("place")).where(candidates.c.due_at <= now).subquery()
    return (
        select(ranked.c.id, ranked.c.tenant_id)
        .where(ranked.c.place <= room.each_tenant)
        .order_by(ranked.c.due_at, ranked.c.id)
        .limit(2 * room.all)
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
