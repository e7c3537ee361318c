"""Queries about hub events: the incoming webhooks of sources."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from sqlalchemy import CursorResult, Select, delete, func, insert, select

from app.hubs.records import HubEventRecord
from app.infra.db.database import Reader, Writer
from app.infra.db.excess import excess_of
from app.infra.db.pagination import decode_cursor, encode_cursor, page_length
from app.infra.db.tables.hubs import HubEventRow
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page

__all__ = [
    "any_before",
    "count_events",
    "find_event",
    "insert_event",
    "list_events",
    "prune_events",
    "prune_oldest",
]

_COLUMNS = tuple(name for name in HubEventRecord.__dataclass_fields__ if name != "job")


def insert_event(session: Writer, event: HubEventRecord) -> None:
    """Store an event. The caller holds the lock of its source, and knows that its id is new."""
    values = {name: getattr(event, name) for name in _COLUMNS}
    session.execute(insert(HubEventRow).values(job_id=event.job, **values))


def find_event(session: Reader, source_id: str, event_id: str) -> HubEventRecord | None:
    """The event that a source's hub gave this id, or None."""
    query = select(HubEventRow).where(
        HubEventRow.source_id == source_id, HubEventRow.event_id == event_id
    )
    row = session.scalar(query)
    return None if row is None else _record(row)


def list_events(
    session: Reader, source_id: str, *, limit: int, cursor: str | None
) -> Page[HubEventRecord]:
    """The events of a source, newest first."""
    query = select(HubEventRow).where(HubEventRow.source_id == source_id)
    if cursor is not None:
        query = query.where(HubEventRow.id < _number(decode_cursor(cursor)))
    query = query.order_by(HubEventRow.id.desc())
    count, more = page_length(session, query, limit)
    rows = session.scalars(query.limit(count)).all()
    return Page(
        tuple(_record(row) for row in rows), encode_cursor(str(rows[-1].id)) if more else None
    )


def any_before(session: Reader, moment: datetime) -> bool:
    """Whether an event was received before a moment."""
    query = select(HubEventRow.id).where(HubEventRow.received_at < moment)
    return session.scalar(query.limit(1)) is not None


def prune_events(session: Writer, before: datetime, *, limit: int) -> int:
    """Delete at most ``limit`` events received before a moment; returns how many."""
    old = select(HubEventRow.id).where(HubEventRow.received_at < before).limit(limit)
    done = session.execute(delete(HubEventRow).where(HubEventRow.id.in_(old)))
    return cast("CursorResult[None]", done).rowcount


def count_events(session: Reader, source_id: str) -> int:
    """Return the number of events of a source."""
    return session.scalars(_count_query(source_id)).one()


def prune_oldest(session: Writer, kept: int, limit: int, source_id: str) -> tuple[int, int]:
    """Delete at most ``limit`` of the oldest events of a source beyond ``kept``.

    Returns how many, and 0.
    """
    old = select(HubEventRow.id).where(HubEventRow.source_id == source_id).order_by(HubEventRow.id)
    old = old.limit(excess_of(_count_query(source_id), kept, limit))
    done = session.execute(delete(HubEventRow).where(HubEventRow.id.in_(old.scalar_subquery())))
    return cast("CursorResult[None]", done).rowcount, 0


def _count_query(source_id: str) -> Select[int]:
    return select(func.count()).where(HubEventRow.source_id == source_id)


def _number(text: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 19):
        raise InvalidParameter(
            "this cursor was not given out by this listing: start again without one", field="cursor"
        )
    return int(text)


def _record(row: HubEventRow) -> HubEventRecord:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return HubEventRecord(job=row.job_id, **values)
