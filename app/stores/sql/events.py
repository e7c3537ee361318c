"""Every query about events: what has happened, and whether it is known who hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, select, update

from app.stores.sql.database import Reader, Writer
from app.stores.sql.event_tables import EventRow

__all__ = [
    "Event",
    "any_told",
    "find_untold",
    "insert_events",
    "is_followed",
    "mark_compared",
    "mark_told",
    "note_failure",
    "prune_events",
    "tenant_ids_untold",
    "untold",
]

_AT_ONCE = 200  # rows of one statement: below every backend's limit of bound parameters


@dataclass(frozen=True, slots=True)
class Event:
    """What has happened.

    Attributes:
        type: as subscriptions name it, or one of the service's own.
        model: the name, the id and the revision, of what is about one; else None.
        data: small JSON.
        compared: the neighbours of a later revision stand for those of this one.
        failures: times that telling it went wrong.
    """

    id: str
    tenant_id: int
    type: str
    space_id: int
    space: str
    model: str | None
    model_id: int | None
    revision: int | None
    data: dict[str, Any]
    told: bool
    compared: bool
    failures: int
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
        EventRow.tenant_id == event.tenant_id,
        EventRow.model_id == event.model_id,
        EventRow.id > event.id,
    )
    return session.scalar(query.limit(1)) is not None


def tenant_ids_untold(session: Reader, before: datetime) -> list[int]:
    """Whose events have waited since before a moment."""
    query = select(EventRow.tenant_id).where(EventRow.told.is_(False), EventRow.created_at < before)
    return list(session.scalars(query.distinct()))


def untold(session: Reader, tenant_id: int, space_id: int | None, limit: int) -> list[Event]:
    """The tenant's events that are still to be told, the oldest first; of a space, or of all."""
    query = select(EventRow).where(EventRow.told.is_(False), EventRow.tenant_id == tenant_id)
    if space_id is not None:
        query = query.where(EventRow.space_id == space_id)
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
            EventRow.tenant_id == event.tenant_id,
            EventRow.model_id == event.model_id,
            EventRow.told.is_(False),
            EventRow.revision <= revision,
        )
        .values(compared=True)
        .execution_options(synchronize_session=False)
    )


def note_failure(session: Writer, event: Event) -> None:
    """Finding out what follows from it went wrong once more."""
    session.execute(
        update(EventRow)
        .where(EventRow.id == event.id)
        .values(failures=EventRow.failures + 1)
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


def _event(row: EventRow) -> Event:
    return Event(**{name: getattr(row, name) for name in _EVENT})
