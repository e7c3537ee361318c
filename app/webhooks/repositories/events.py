"""Queries about events: the outbox that fan-out turns into webhook deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, func, insert, or_, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.excess import excess_of
from app.infra.db.tables.tenants import TenantRow
from app.infra.db.tables.webhooks import EventRow
from app.tenancy.auth.records import Tenant

__all__ = [
    "Event",
    "any_fanned_out",
    "any_overdue",
    "count_of_tenant",
    "find_pending",
    "first_uncompared_revisions",
    "insert_events",
    "lock_pending",
    "is_followed",
    "is_pending",
    "mark_compared",
    "mark_fanned_out",
    "pending_ids",
    "put_off",
    "prune_events",
    "prune_oldest",
    "uncompared_events",
    "events_to_fan_out",
    "overdue_spaces",
]

_BATCH_SIZE = 200  # rows of one statement: below every backend's limit of bound parameters


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a space or a model that subscriptions may ask for.

    Attributes:
        type: an event type of subscriptions, or one that only the service uses.
        space_id: the id of the space; 0, and no name, for an event about what is in none.
        model: the model's name, with its id and revision; None for an event about the space. There
            is no id of a model that is a name alone.
        tags: the model's tags at that time.
        data: small JSON.
        neighbors_compared: a later revision's comparison covers the neighbours of this one.
        failures: the number of times that its fan-out failed while all stores were available.
        due_at: the time of the next fan-out after a failure.
    """

    id: str
    tenant_id: int
    type: str
    space_id: int
    space: str
    model: str | None
    model_id: int | None
    revision: int | None
    tags: list[str]
    data: dict[str, Any]
    fanned_out: bool
    neighbors_compared: bool
    failures: int
    due_at: datetime | None
    created_at: datetime


_EVENT = tuple(Event.__dataclass_fields__)


def insert_events(session: Writer, events: Sequence[Event]) -> None:
    """Store events, in the transaction of the change that they are about."""
    rows = [{name: getattr(event, name) for name in _EVENT} for event in events]
    for start in range(0, len(rows), _BATCH_SIZE):
        session.execute(insert(EventRow), rows[start : start + _BATCH_SIZE])


def is_followed(session: Reader, event: Event) -> bool:
    """Whether a later event about the same model waits for its fan-out."""
    query = select(EventRow.id).where(
        EventRow.fanned_out.is_(False),
        EventRow.model_id == event.model_id,
        EventRow.id > event.id,
    )
    return session.scalar(query.limit(1)) is not None


def is_pending(session: Reader, space_id: int, model: str, event_type: str) -> bool:
    """Whether an event of a type, about the model of this name, waits for its fan-out."""
    query = select(EventRow.id).where(
        EventRow.fanned_out.is_(False),
        EventRow.space_id == space_id,
        EventRow.model == model,
        EventRow.type == event_type,
    )
    return session.scalar(query.limit(1)) is not None


def any_overdue(session: Reader, before: datetime) -> bool:
    """Whether an event has been due since before a moment."""
    return session.scalar(select(EventRow.id).where(*_late(before)).limit(1)) is not None


def overdue_spaces(session: Reader, before: datetime) -> list[tuple[Tenant, int]]:
    """The tenants and spaces whose events have been due since before a moment."""
    query = (
        select(TenantRow.id, TenantRow.name, EventRow.space_id)
        .join(TenantRow, TenantRow.id == EventRow.tenant_id)
        .where(*_late(before))
    )
    return [(Tenant(id_, name), space) for id_, name, space in session.execute(query.distinct())]


def first_uncompared_revisions(
    session: Reader, space_id: int, event_type: str, *, limit: int
) -> dict[int, int]:
    """Return the models of a space whose neighbours are not compared yet, by id, with a revision.

    The revision is the first with a pending event of this type.

    Args:
        limit: the number of events that are read, oldest first.
    """
    query = select(EventRow.model_id, EventRow.revision).where(
        EventRow.fanned_out.is_(False),
        EventRow.space_id == space_id,
        EventRow.type == event_type,
        EventRow.neighbors_compared.is_(False),
    )
    first: dict[int, int] = {}
    for of, revision in session.execute(query.order_by(EventRow.id).limit(limit)):
        if of is not None and revision is not None:
            first[of] = min(revision, first.get(of, revision))
    return first


def uncompared_events(session: Reader, event: Event, revision: int) -> list[Event]:
    """The uncompared events of this event's model and type, up to a revision."""
    query = select(EventRow).where(
        EventRow.fanned_out.is_(False),
        EventRow.model_id == event.model_id,
        EventRow.type == event.type,
        EventRow.neighbors_compared.is_(False),
        EventRow.revision <= revision,
    )
    return [_event(row) for row in session.scalars(query)]


def events_to_fan_out(
    session: Reader, tenant_id: int, space_id: int | None, now: datetime, *, limit: int
) -> list[Event]:
    """The tenant's events that are due for fan-out, oldest first; of a space, or of all."""
    of = _of(tenant_id, space_id)
    query = select(EventRow).where(EventRow.fanned_out.is_(False), *of, _due(now))
    rows = session.scalars(query.order_by(EventRow.id).limit(limit))
    return [_event(row) for row in rows]


def pending_ids(session: Reader, tenant_id: int, space_id: int | None, *, limit: int) -> list[str]:
    """The ids of the tenant's events that wait, oldest first; of a space, or of all."""
    query = select(EventRow.id).where(EventRow.fanned_out.is_(False), *_of(tenant_id, space_id))
    return list(session.scalars(query.order_by(EventRow.id).limit(limit)))


def lock_pending(session: Writer, ids: Sequence[str]) -> list[Event]:
    """Lock and return those of these few events that still wait, oldest first."""
    query = select(EventRow).where(EventRow.id.in_(ids), EventRow.fanned_out.is_(False))
    rows = session.scalars(query.order_by(EventRow.id).with_for_update())
    return [_event(row) for row in rows]


def find_pending(session: Reader, event: Event, *, lock: bool = False) -> Event | None:
    """The event as it is now; None once it is fanned out.

    Args:
        lock: whether to lock it until the change ends.
    """
    query = select(EventRow).where(EventRow.id == event.id, EventRow.fanned_out.is_(False))
    row = session.scalar(query.with_for_update() if lock else query)
    return None if row is None else _event(row)


def mark_fanned_out(session: Writer, event: Event) -> None:
    """Record that the deliveries of an event exist."""
    session.execute(update(EventRow).where(EventRow.id == event.id).values(fanned_out=True))


def mark_compared(session: Writer, event: Event, revision: int) -> None:
    """Record that this revision's comparison covers all pending events up to it."""
    session.execute(
        update(EventRow)
        .where(
            EventRow.model_id == event.model_id,
            EventRow.fanned_out.is_(False),
            EventRow.revision <= revision,
        )
        .values(neighbors_compared=True)
        .execution_options(synchronize_session=False)
    )


def put_off(session: Writer, event: Event, until: datetime, *, counts: bool) -> None:
    """Retry the fan-out of an event later.

    Args:
        counts: whether the attempt counts as one of the event's ``failures``.
    """
    session.execute(
        update(EventRow)
        .where(EventRow.id == event.id)
        .values(failures=EventRow.failures + int(counts), due_at=until)
        .execution_options(synchronize_session=False)
    )


def any_fanned_out(session: Reader, before: datetime) -> bool:
    """Whether a fanned-out event was created before a moment."""
    query = select(EventRow.id).where(EventRow.fanned_out, EventRow.created_at < before)
    return session.scalar(query.limit(1)) is not None


def prune_events(session: Writer, before: datetime, *, limit: int) -> int:
    """Delete at most ``limit`` fanned-out events created before a moment; returns how many."""
    old = select(EventRow.id).where(EventRow.fanned_out, EventRow.created_at < before).limit(limit)
    gone = session.execute(
        delete(EventRow)
        .where(EventRow.id.in_(old.scalar_subquery()))
        .returning(EventRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


def count_of_tenant(session: Reader, tenant_id: int) -> int:
    """Return the number of events of a tenant."""
    return session.scalars(_count_query(tenant_id)).one()


def prune_oldest(session: Writer, kept: int, limit: int, tenant_id: int) -> tuple[int, int]:
    """Delete at most ``limit`` of a tenant's events beyond ``kept``, the oldest fanned-out first.

    Returns the number of deleted events, and how many of these still waited for their fan-out.
    """
    done = _delete_oldest(session, tenant_id, True, kept, limit)
    waiting = _delete_oldest(session, tenant_id, False, kept, limit - done) if done < limit else 0
    return done + waiting, waiting


def _count_query(tenant_id: int) -> Select[int]:
    # Both values, because the index of a tenant's events begins with this column.
    of = EventRow.fanned_out.in_([True, False]), EventRow.tenant_id == tenant_id
    return select(func.count()).where(*of)


def _delete_oldest(session: Writer, tenant_id: int, fanned_out: bool, kept: int, limit: int) -> int:
    of = EventRow.fanned_out.is_(fanned_out), EventRow.tenant_id == tenant_id
    old = select(EventRow.id).where(*of).order_by(EventRow.id)
    old = old.limit(excess_of(_count_query(tenant_id), kept, limit))
    gone = session.execute(
        delete(EventRow)
        .where(EventRow.id.in_(old.scalar_subquery()))
        .returning(EventRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


def _of(tenant_id: int, space_id: int | None) -> tuple[ColumnElement[bool], ...]:
    """The conditions of a space's events; of all of a tenant's, or of those in no space."""
    if space_id:
        return (EventRow.space_id == space_id,)
    own = EventRow.tenant_id == tenant_id
    return (own,) if space_id is None else (own, EventRow.space_id == space_id)


def _late(before: datetime) -> tuple[ColumnElement[bool], ...]:
    return EventRow.fanned_out.is_(False), EventRow.created_at < before, _due(before)


def _due(now: datetime) -> ColumnElement[bool]:
    return or_(EventRow.due_at.is_(None), EventRow.due_at <= now)


def _event(row: EventRow) -> Event:
    return Event(**{name: getattr(row, name) for name in _EVENT})
