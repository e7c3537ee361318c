"""Every query about events: what has happened, and whether it is known who hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, insert, or_, select, update

from app.auth.records import Tenant
from app.infra.db.database import Reader, Writer
from app.infra.db.tables.tenants import TenantRow
from app.infra.db.tables.webhooks import EventRow

__all__ = [
    "Event",
    "any_told",
    "any_untold",
    "find_untold",
    "first_uncompared",
    "insert_events",
    "is_followed",
    "mark_compared",
    "mark_told",
    "put_off",
    "prune_events",
    "uncompared",
    "untold",
    "whose_untold",
]

_AT_ONCE = 200  # rows of one statement: below every backend's limit of bound parameters


@dataclass(frozen=True, slots=True)
class Event:
    """What has happened.

    Attributes:
        type: as subscriptions name it, or one of the service's own.
        model: the name, the id and the revision, of what is about one; else None.
        tags: of the model, at that time.
        data: small JSON.
        compared: the neighbours of a later revision stand for those of this one.
        failures: times that telling it went wrong where no store was away.
        due_at: when it is tried again, where that went wrong.
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
    told: bool
    compared: bool
    failures: int
    due_at: datetime | None
    created_at: datetime


_EVENT = tuple(Event.__dataclass_fields__)


def insert_events(session: Writer, events: Sequence[Event]) -> None:
    """Write down what has happened, with the data it tells of."""
    rows = [{name: getattr(event, name) for name in _EVENT} for event in events]
    for start in range(0, len(rows), _AT_ONCE):
        session.execute(insert(EventRow), rows[start : start + _AT_ONCE])


def is_followed(session: Reader, event: Event) -> bool:
    """Whether a later event about the same model is still to be told."""
    query = select(EventRow.id).where(
        EventRow.told.is_(False),
        EventRow.model_id == event.model_id,
        EventRow.id > event.id,
    )
    return session.scalar(query.limit(1)) is not None


def any_untold(session: Reader, before: datetime) -> bool:
    """Whether an event has been due since before a moment."""
    return session.scalar(select(EventRow.id).where(*_late(before)).limit(1)) is not None


def whose_untold(session: Reader, before: datetime) -> list[tuple[Tenant, int]]:
    """Whose events, of which spaces, have been due since before a moment."""
    query = (
        select(TenantRow.id, TenantRow.name, EventRow.space_id)
        .join(TenantRow, TenantRow.id == EventRow.tenant_id)
        .where(*_late(before))
    )
    return [(Tenant(id_, name), space) for id_, name, space in session.execute(query.distinct())]


def first_uncompared(session: Reader, space_id: int, kind: str, *, limit: int) -> dict[int, int]:
    """The models of a space whose neighbours are still to be compared, because of events of a type:
    the first revision of each that such an event is about, under their ids.

    Args:
        limit: so many events are read, those that have waited longest.
    """
    query = select(EventRow.model_id, EventRow.revision).where(
        EventRow.told.is_(False),
        EventRow.space_id == space_id,
        EventRow.type == kind,
        EventRow.compared.is_(False),
    )
    first: dict[int, int] = {}
    for of, revision in session.execute(query.order_by(EventRow.id).limit(limit)):
        if of is not None and revision is not None:
            first[of] = min(revision, first.get(of, revision))
    return first


def uncompared(session: Reader, event: Event, revision: int) -> list[Event]:
    """The event, and those like it of its model up to a revision, that are still to be compared."""
    query = select(EventRow).where(
        EventRow.told.is_(False),
        EventRow.model_id == event.model_id,
        EventRow.type == event.type,
        EventRow.compared.is_(False),
        EventRow.revision <= revision,
    )
    return [_event(row) for row in session.scalars(query)]


def untold(
    session: Reader, tenant_id: int, space_id: int | None, now: datetime, *, limit: int
) -> list[Event]:
    """The tenant's events that are to be told now, the oldest first; of a space, or of all."""
    where = EventRow.tenant_id == tenant_id if space_id is None else EventRow.space_id == space_id
    query = select(EventRow).where(EventRow.told.is_(False), where, _due(now))
    rows = session.scalars(query.order_by(EventRow.id).limit(limit))
    return [_event(row) for row in rows]


def find_untold(session: Reader, event: Event, *, lock: bool = False) -> Event | None:
    """The event as it is now; None where somebody has told of it.

    Args:
        lock: until the change ends.
    """
    query = select(EventRow).where(EventRow.id == event.id, EventRow.told.is_(False))
    row = session.scalar(query.with_for_update() if lock else query)
    return None if row is None else _event(row)


def mark_told(session: Writer, event: Event) -> None:
    """It is known who hears of it."""
    session.execute(update(EventRow).where(EventRow.id == event.id).values(told=True))


def mark_compared(session: Writer, event: Event, revision: int) -> None:
    """The neighbours of this revision stand for those of all before it that are to be told."""
    session.execute(
        update(EventRow)
        .where(
            EventRow.model_id == event.model_id,
            EventRow.told.is_(False),
            EventRow.revision <= revision,
        )
        .values(compared=True)
        .execution_options(synchronize_session=False)
    )


def put_off(session: Writer, event: Event, until: datetime, *, counts: bool) -> None:
    """Finding out what follows from it went wrong: it is tried again later.

    Args:
        counts: it is one of its ``failures``.
    """
    session.execute(
        update(EventRow)
        .where(EventRow.id == event.id)
        .values(failures=EventRow.failures + int(counts), due_at=until)
        .execution_options(synchronize_session=False)
    )


def any_told(session: Reader, before: datetime) -> bool:
    """Whether there is an event of before a moment that was told of."""
    query = select(EventRow.id).where(EventRow.told, EventRow.created_at < before)
    return session.scalar(query.limit(1)) is not None


def prune_events(session: Writer, before: datetime, *, limit: int) -> int:
    """Forget what was told of before a moment, at most so many; how many."""
    old = select(EventRow.id).where(EventRow.told, EventRow.created_at < before).limit(limit)
    gone = session.execute(
        delete(EventRow)
        .where(EventRow.id.in_(old.scalar_subquery()))
        .returning(EventRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


def _late(before: datetime) -> tuple[ColumnElement[bool], ...]:
    return EventRow.told.is_(False), EventRow.created_at < before, _due(before)


def _due(now: datetime) -> ColumnElement[bool]:
    return or_(EventRow.due_at.is_(None), EventRow.due_at <= now)


def _event(row: EventRow) -> Event:
    return Event(**{name: getattr(row, name) for name in _EVENT})
