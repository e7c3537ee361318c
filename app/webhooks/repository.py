"""Every query about subscriptions: who is told of what, and how their receivers fare."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, func, or_, select, update

from app.auth.records import Tenant
from app.errors import SubscriptionNotFound
from app.infra.db.database import Reader, Writer
from app.infra.db.ids import is_id
from app.infra.db.pagination import decode_cursor, encode_cursor
from app.infra.db.tables.tenants import TenantRow
from app.infra.db.tables.webhooks import SubscriptionRow
from modelkin.types.paging import Page

__all__ = [
    "Subscription",
    "change",
    "change_by_id",
    "count_subscriptions",
    "delete_subscription",
    "find_listeners",
    "find_subscriptions",
    "get_subscription",
    "insert_subscription",
    "list_subscriptions",
    "lock_subscription",
    "who_listens",
]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription as the database knows it; its secrets are encrypted.

    Attributes:
        events: the types it is told of.
        space, model, tag: what it is narrowed to; None where to nothing.
        threshold: of ``neighbors.changed``.
        previous_secrets: those before it that sign as well, the last until ``previous_until``.
        disabled_reason: why it was disabled; None where somebody did it.
        failures: attempts that have failed since one succeeded.
        failing_since: when the first of them was.
        paused_until: nothing is sent before.
        last_failure: ``{"at", "detail"}``.
    """

    id: str
    tenant_id: int
    url: str
    events: tuple[str, ...]
    space: str | None
    model: str | None
    tag: str | None
    threshold: float | None
    description: str | None
    secret: bytes
    previous_secrets: bytes | None
    previous_until: datetime | None
    enabled: bool
    disabled_reason: str | None
    failures: int
    failing_since: datetime | None
    paused_until: datetime | None
    last_success_at: datetime | None
    last_failure: dict[str, Any] | None
    created_at: datetime
    updated_at: datetime

    def __repr__(self) -> str:
        return f"Subscription({self.id})"


_COLUMNS = tuple(Subscription.__dataclass_fields__)


def insert_subscription(session: Writer, subscription: Subscription) -> None:
    """A new one."""
    columns = {name: getattr(subscription, name) for name in _COLUMNS}
    session.add(SubscriptionRow(**{**columns, "events": list(subscription.events)}))
    session.flush()


def get_subscription(
    session: Reader, tenant: Tenant, subscription_id: str, *, lock: bool = False
) -> Subscription:
    """The tenant's subscription, or :class:`SubscriptionNotFound`.

    Args:
        lock: until the change ends.
    """
    query = select(SubscriptionRow).where(
        SubscriptionRow.id == subscription_id, SubscriptionRow.tenant_id == tenant.id
    )
    row = (
        session.scalar(query.with_for_update() if lock else query)
        if is_id(subscription_id)
        else None
    )
    if row is None:
        raise SubscriptionNotFound("there is no such subscription")
    return _record(row)


def find_subscriptions(session: Reader, ids: Collection[str]) -> dict[str, Subscription]:
    """Those of some subscriptions that there are, whosever they are, by their ids."""
    query = select(SubscriptionRow).where(SubscriptionRow.id.in_(ids))
    rows = session.scalars(query.execution_options(populate_existing=True))
    return {row.id: _record(row) for row in rows}


def lock_subscription(session: Writer, subscription_id: str) -> Subscription | None:
    """A subscription, whosever it is, locked until the change ends; None if it was deleted."""
    query = select(SubscriptionRow).where(SubscriptionRow.id == subscription_id)
    row = session.scalar(query.with_for_update().execution_options(populate_existing=True))
    return None if row is None else _record(row)


def list_subscriptions(
    session: Reader, tenant: Tenant, *, limit: int, cursor: str | None
) -> Page[Subscription]:
    """The tenant's, newest first."""
    query = select(SubscriptionRow).where(SubscriptionRow.tenant_id == tenant.id)
    if cursor is not None:
        query = query.where(SubscriptionRow.id < decode_cursor(cursor))
    rows = session.scalars(query.order_by(SubscriptionRow.id.desc()).limit(limit + 1)).all()
    more = encode_cursor(rows[limit - 1].id) if len(rows) > limit else None
    return Page(tuple(_record(row) for row in rows[:limit]), more)


def who_listens(
    session: Reader, tenant_id: int, space: str, types: Collection[str]
) -> Tenant | None:
    """The tenant, if it has a subscription to any of these types for this space; else None.

    It is asked with every change, so it is one question of few rows.
    """
    query = (
        select(TenantRow.id, TenantRow.name, SubscriptionRow.events)
        .join(SubscriptionRow, SubscriptionRow.tenant_id == TenantRow.id)
        .where(_listens(tenant_id, space))
    )
    for row in session.execute(query):
        if not set(types).isdisjoint(row.events):
            return Tenant(id=row.id, name=row.name)
    return None


def count_subscriptions(session: Reader, tenant: Tenant) -> int:
    """How many the tenant has."""
    query = select(func.count()).where(SubscriptionRow.tenant_id == tenant.id)
    return session.execute(query).scalar_one()


def find_listeners(session: Reader, tenant_id: int, space: str) -> list[Subscription]:
    """The subscriptions that may be told of this space, the oldest first."""
    query = select(SubscriptionRow).where(_listens(tenant_id, space)).order_by(SubscriptionRow.id)
    return [_record(row) for row in session.scalars(query)]


def change(session: Writer, subscription: Subscription, **columns: Any) -> Subscription:
    """The subscription with other values in some columns. The caller holds its lock."""
    if "events" in columns:
        columns["events"] = list(columns["events"])
    change_by_id(session, subscription.id, **columns)
    return find_subscriptions(session, [subscription.id])[subscription.id]


def change_by_id(session: Writer, subscription_id: str, **columns: Any) -> None:
    """Other values in some columns, if any, of a subscription that there may be."""
    if not columns:
        return
    session.execute(
        update(SubscriptionRow)
        .where(SubscriptionRow.id == subscription_id)
        .values(**columns)
        .execution_options(synchronize_session=False)
    )


def delete_subscription(session: Writer, subscription: Subscription) -> None:
    """Forget it, and all that was to be sent to it."""
    session.execute(
        delete(SubscriptionRow)
        .where(SubscriptionRow.id == subscription.id)
        .execution_options(synchronize_session=False)
    )


def _listens(tenant_id: int, space: str) -> ColumnElement[bool]:
    return (
        (SubscriptionRow.tenant_id == tenant_id)
        & SubscriptionRow.enabled
        & or_(SubscriptionRow.space.is_(None), SubscriptionRow.space == space)
    )


def _record(row: SubscriptionRow) -> Subscription:
    columns = {name: getattr(row, name) for name in _COLUMNS}
    return Subscription(**{**columns, "events": tuple(row.events)})
