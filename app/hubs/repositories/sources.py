"""Queries about sources, without their hub events and models."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, CursorResult, delete, func, select, update

from app.hubs.records import SourceRecord
from app.infra.db.database import Reader, Writer
from app.infra.db.ids import is_id
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.tables.hubs import SourceRow
from app.infra.db.tables.tenants import TenantRow
from app.infra.errors import SourceNotFound
from app.tenancy.auth.records import Tenant
from modelkin.types.paging import Page

__all__ = [
    "any_due",
    "count_sources",
    "delete_source",
    "due_sources",
    "find_source",
    "get_source",
    "insert_source",
    "list_sources",
    "lock_source",
    "note_event",
    "note_error",
    "note_poll",
    "note_refusal",
    "owners",
    "put_off_poll",
    "source_records",
    "update_source",
]

_COLUMNS = tuple(name for name in SourceRecord.__dataclass_fields__ if name != "tenant")
_MAX_ERROR_LENGTH = 2000
"""Characters of an error that are kept."""


def insert_source(session: Writer, source: SourceRecord) -> None:
    """Store a new source."""
    values = {name: getattr(source, name) for name in _COLUMNS}
    session.add(SourceRow(tenant_id=source.tenant.id, **values))
    session.flush()


def find_source(session: Reader, source_id: str) -> SourceRecord | None:
    """The source with this id, of any tenant, or None."""
    if not is_id(source_id):
        return None
    query = _query().where(SourceRow.id == source_id)
    found = session.execute(query.execution_options(populate_existing=True)).one_or_none()
    return None if found is None else _record(*found)


def get_source(session: Reader, tenant: Tenant, source_id: str) -> SourceRecord:
    """The tenant's source of this id, or :class:`SourceNotFound`."""
    source = find_source(session, source_id)
    if source is None or source.tenant.id != tenant.id:
        raise SourceNotFound("there is no such source")
    return source


def lock_source(session: Writer, tenant: Tenant, source_id: str) -> SourceRecord:
    """Return the tenant's source of this id, locked until the transaction ends."""
    if is_id(source_id):
        session.execute(select(SourceRow.id).where(SourceRow.id == source_id).with_for_update())
    return get_source(session, tenant, source_id)


def list_sources(
    session: Reader, tenant: Tenant, *, limit: int, cursor: str | None
) -> Page[SourceRecord]:
    """The tenant's sources, newest first."""
    query = _query().where(SourceRow.tenant_id == tenant.id)
    if cursor is not None:
        query = query.where(SourceRow.id < decode_cursor(cursor))
    query = query.order_by(SourceRow.id.desc())
    count, more = page_length(session, query, limit)
    found = session.execute(query.limit(count)).all()
    return page_of((_record(*row) for row in found), more, lambda source: source.id)


def count_sources(session: Reader, tenant: Tenant) -> int:
    """Return the number of sources of a tenant."""
    query = select(func.count()).where(SourceRow.tenant_id == tenant.id)
    return session.execute(query).scalar_one()


def owners(session: Reader) -> list[tuple[str, int]]:
    """All sources by id, with their tenants."""
    rows = session.execute(select(SourceRow.id, SourceRow.tenant_id).order_by(SourceRow.id))
    return [(source, tenant) for source, tenant in rows]


def update_source(session: Writer, source_id: str, values: Mapping[str, Any]) -> None:
    """Set some columns of a source."""
    if values:
        session.execute(update(SourceRow).where(SourceRow.id == source_id).values(**values))


def delete_source(session: Writer, source_id: str) -> None:
    """Delete a source with its hub events and the state of its models."""
    session.execute(delete(SourceRow).where(SourceRow.id == source_id))


def note_event(session: Writer, source_id: str, at: datetime) -> bool:
    """Record that a hub event came, which locks the source; whether the source still exists."""
    statement = update(SourceRow).where(SourceRow.id == source_id).values(last_event_at=at)
    return cast("CursorResult[None]", session.execute(statement)).rowcount > 0


def note_refusal(session: Writer, source_id: str, at: datetime, detail: str) -> None:
    """Record a hub event with a wrong secret or signature."""
    refusal = {"at": at.isoformat(), "detail": detail[:_MAX_ERROR_LENGTH]}
    update_source(session, source_id, {"last_refusal": refusal})


def note_error(session: Writer, source_id: str, code: str, detail: str) -> None:
    """Record that a poll or an ingestion has failed."""
    error = {
        "at": datetime.now(UTC).isoformat(),
        "code": code,
        "detail": detail[:_MAX_ERROR_LENGTH],
    }
    update_source(session, source_id, {"last_error": error})


def note_poll(session: Writer, source_id: str, at: datetime, found: Mapping[str, Any]) -> None:
    """Record that a poll has ended."""
    update_source(session, source_id, {"last_poll_at": at, "last_poll": dict(found)})


def any_due(session: Reader, now: datetime) -> bool:
    """Whether a poll of any source is due."""
    return session.scalar(select(SourceRow.id).where(_due(now)).limit(1)) is not None


def due_sources(session: Writer, now: datetime, *, limit: int) -> list[SourceRecord]:
    """Lock and return sources with a due poll, the longest due first; skip locked ones."""
    return source_records(session, _due(now), SourceRow.next_poll_at, limit)


def source_records(
    session: Writer, wanted: ColumnElement[bool], order: Any, limit: int
) -> list[SourceRecord]:
    """Lock and return some sources, in an order; skip locked ones."""
    query = _query().where(wanted).order_by(order).limit(limit)
    locked = query.with_for_update(skip_locked=True, of=SourceRow)
    return [_record(*found) for found in session.execute(locked)]


def put_off_poll(session: Writer, source: SourceRecord, now: datetime) -> None:
    """Schedule the next poll of a source after its interval."""
    wait = None if source.poll_seconds is None else timedelta(seconds=source.poll_seconds)
    due = None if wait is None or source.url is None else now + wait
    update_source(session, source.id, {"next_poll_at": due})


def _due(now: datetime) -> Any:
    return SourceRow.next_poll_at <= now


def _query() -> Any:
    return select(SourceRow, TenantRow).join(TenantRow, TenantRow.id == SourceRow.tenant_id)


def _record(row: SourceRow, tenant: TenantRow) -> SourceRecord:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return SourceRecord(tenant=Tenant(id=tenant.id, name=tenant.name), **values)
