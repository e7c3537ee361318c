"""Queries about subscriptions, and how their receivers answer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, delete, func, or_, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.ids import is_id
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.tables.tenants import TenantRow
from app.infra.db.tables.webhooks import SubscriptionRow
from app.infra.errors import SubscriptionNotFound
from app.tenancy.auth.records import Tenant
from modelkin.types.paging import Page

__all__ = [
    "Subscription",
    "any_interested",
    "change",
    "change_by_id",
    "count_subscriptions",
    "delete_subscription",
    "subscriptions_to_space",
    "find_subscriptions",
    "get_subscription",
    "insert_subscription",
    "list_subscriptions",
    "lock_subscription",
    "find_interested_tenant",
]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription as the database knows it; its secrets are encrypted.

    Attributes:
        events: the event types that it receives.
        space, model, tag: filters of its events; None for all.
        threshold: the least S of a neighbour in ``neighbors.changed``, now or before.
        previous_secrets: earlier secrets that still sign, the last until ``previous_until``.
        disabled_reason: the reason why the service disabled it; None if a client did.
        failures: failed attempts since the last success.
        failing_since: the time of the first of these failures.
        paused_until: the time before which nothing is sent.
        last_failure: the last failure as ``{"at", "detail"}``.
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
    """Store a new subscription."""
    columns = {name: getattr(subscription, name) for name in _COLUMNS}
    session.add(SubscriptionRow(**{**columns, "events": list(subscription.events)}))
    session.flush()


def get_subscription(
    session: Reader, tenant: Tenant, subscription_id: str, *, lock: bool = False
) -> Subscription:
    """The tenant's subscription, or :class:`SubscriptionNotFound`.

    Args:
        lock: whether to lock it until the transaction ends.
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
    """The existing subscriptions with these ids, of any tenant, by id."""
    query = select(SubscriptionRow).where(SubscriptionRow.id.in_(ids))
    rows = session.scalars(query.execution_options(populate_existing=True))
    return {row.id: _record(row) for row in rows}


def lock_subscription(session: Writer, subscription_id: str) -> Subscription | None:
    """A subscription of any tenant, locked until the transaction ends; None if it was deleted."""
    query = select(SubscriptionRow).where(SubscriptionRow.id == subscription_id)
    row = session.scalar(query.with_for_update().execution_options(populate_existing=True))
    return None if row is None else _record(row)


def list_subscriptions(
    session: Reader, tenant: Tenant, *, limit: int, cursor: str | None
) -> Page[Subscription]:
    """The tenant's subscriptions, newest first."""
    query = select(SubscriptionRow).where(SubscriptionRow.tenant_id == tenant.id)
    if cursor is not None:
        query = query.where(SubscriptionRow.id < decode_cursor(cursor))
    query = query.order_by(SubscriptionRow.id.desc())
    count, more = page_length(session, query, limit)
    rows = session.scalars(query.limit(count)).all()
    return page_of((_record(row) for row in rows), more, lambda each: each.id)


def find_interested_tenant(
    session: Reader, tenant_id: int, space: str, types: Collection[str]
) -> Tenant | None:
    """Return the tenant if it has a subscription to any of these types for this space, else None.

    Every change of the space runs this query, so it reads few rows.
    """
    for row in session.rows(_interested_query(), tenant=tenant_id, space=space):
        if not set(types).isdisjoint(row.events):
            return Tenant(id=row.id, name=row.name)
    return None


def any_interested(session: Reader, tenant: Tenant, types: Collection[str]) -> bool:
    """Whether a tenant has a subscription to any of these types, whatever its space."""
    rows = session.rows(_events_query(), tenant=tenant.id)
    return any(not set(types).isdisjoint(row.events) for row in rows)


def count_subscriptions(session: Reader, tenant: Tenant) -> int:
    """Return the number of subscriptions of the tenant."""
    query = select(func.count()).where(SubscriptionRow.tenant_id == tenant.id)
    return session.execute(query).scalar_one()


def subscriptions_to_space(session: Reader, tenant_id: int, space: str) -> list[Subscription]:
    """The enabled subscriptions to this space, the oldest first."""
    query = select(SubscriptionRow).where(_concerns()).order_by(SubscriptionRow.id)
    rows = session.scalars(query, {"tenant": tenant_id, "space": space})
    return [_record(row) for row in rows]


def change(session: Writer, subscription: Subscription, **columns: Any) -> Subscription:
    """Set some columns; returns the changed subscription. The caller holds its lock."""
    if "events" in columns:
        columns["events"] = list(columns["events"])
    change_by_id(session, subscription.id, **columns)
    return find_subscriptions(session, [subscription.id])[subscription.id]


def change_by_id(session: Writer, subscription_id: str, **columns: Any) -> None:
    """Set some columns, if any, of a subscription if it exists."""
    if not columns:
        return
    session.execute(
        update(SubscriptionRow)
        .where(SubscriptionRow.id == subscription_id)
        .values(**columns)
        .execution_options(synchronize_session=False)
    )


def delete_subscription(session: Writer, subscription: Subscription) -> None:
    """Delete a subscription with its deliveries."""
    session.execute(
        delete(SubscriptionRow)
        .where(SubscriptionRow.id == subscription.id)
        .execution_options(synchronize_session=False)
    )


def _concerns() -> ColumnElement[bool]:
    return (
        (SubscriptionRow.tenant_id == bindparam("tenant"))
        & SubscriptionRow.enabled
        & or_(SubscriptionRow.space.is_(None), SubscriptionRow.space == bindparam("space"))
    )


@cache
def _events_query() -> Select[list[str]]:
    """The query for the types of a tenant's subscriptions, built once likewise."""
    own = SubscriptionRow.tenant_id == bindparam("tenant")
    return select(SubscriptionRow.events).where(own, SubscriptionRow.enabled)


@cache
def _interested_query() -> Select[int, str, list[str]]:
    """The query for interested subscriptions, built once: building takes as long as running."""
    return (
        select(TenantRow.id, TenantRow.name, SubscriptionRow.events)
        .join(SubscriptionRow, SubscriptionRow.tenant_id == TenantRow.id)
        .where(_concerns())
    )


def _record(row: SubscriptionRow) -> Subscription:
    columns = {name: getattr(row, name) for name in _COLUMNS}
    return Subscription(**{**columns, "events": tuple(row.events)})
