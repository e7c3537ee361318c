"""Queries for stored reports: a row each, with the whole of it compressed."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import delete, func, select

from app.infra.db.database import Reader, Writer
from app.infra.db.ids import is_id
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.tables.reports import ReportRow
from app.infra.errors import ReportNotFound
from app.kinship.reports.records import Document, MadeBy, ReportRecord
from app.tenancy.auth.records import Tenant
from modelkin.types.paging import Page
from modelkin.types.reports import ReportSize

__all__ = [
    "bill",
    "content",
    "delete_report",
    "find_newest",
    "get_report",
    "insert_report",
    "list_reports",
    "packed_bytes",
    "prune",
]


def insert_report(
    session: Writer, report: ReportRecord, content: Document, bill: Document | None
) -> None:
    """Store a report with its JSON and its bill of materials, if it has one."""
    session.add(
        ReportRow(
            id=report.id,
            tenant_id=report.tenant_id,
            since=report.since,
            until=report.until,
            size=asdict(report.size),
            made_by=report.made_by,
            content=content.packed,
            content_bytes=report.content_bytes,
            bill=None if bill is None else bill.packed,
            bill_bytes=report.bill_bytes,
        )
    )
    session.flush()


def get_report(session: Reader, tenant: Tenant, report_id: str) -> ReportRecord:
    """The tenant's report of this id, or :class:`ReportNotFound`."""
    own = ReportRow.tenant_id == tenant.id, ReportRow.id == report_id
    row = session.scalar(select(ReportRow).where(*own)) if is_id(report_id) else None
    if row is None:
        raise ReportNotFound(f"there is no report {report_id!r}")
    return _record(row)


def find_newest(
    session: Reader, tenant: Tenant, made_by: MadeBy | None = None
) -> ReportRecord | None:
    """The tenant's newest report, or that of one origin; None without one."""
    query = select(ReportRow).where(ReportRow.tenant_id == tenant.id)
    if made_by is not None:
        query = query.where(ReportRow.made_by == made_by)
    row = session.scalar(query.order_by(ReportRow.id.desc()).limit(1))
    return None if row is None else _record(row)


def list_reports(
    session: Reader, tenant: Tenant, *, limit: int, cursor: str | None
) -> Page[ReportRecord]:
    """The tenant's reports, newest first."""
    query = select(ReportRow).where(ReportRow.tenant_id == tenant.id)
    if cursor is not None:
        query = query.where(ReportRow.id < decode_cursor(cursor))
    query = query.order_by(ReportRow.id.desc())
    count, more = page_length(session, query, limit)
    rows = session.scalars(query.limit(count)).all()
    return page_of((_record(row) for row in rows), more, lambda report: report.id)


def packed_bytes(session: Reader, report: ReportRecord) -> int:
    """The bytes that the JSON of a report takes, compressed; or its bill, if that takes more."""
    lengths = select(func.length(ReportRow.content), func.length(ReportRow.bill))
    found = session.execute(lengths.where(ReportRow.id == report.id)).first()
    return 0 if found is None else max(found[0], found[1] or 0)


def content(session: Reader, report: ReportRecord) -> Document:
    """The JSON of a report; :class:`ReportNotFound` if it was deleted meanwhile."""
    held = session.scalar(select(ReportRow.content).where(ReportRow.id == report.id))
    if held is None:
        raise ReportNotFound(f"there is no report {report.id!r} any more")
    return Document(held, report.content_bytes)


def bill(session: Reader, report: ReportRecord) -> Document | None:
    """The bill of materials of a report; None where none was made."""
    held = session.scalar(select(ReportRow.bill).where(ReportRow.id == report.id))
    return None if held is None else Document(held, report.bill_bytes)


def prune(session: Writer, tenant: Tenant, kept: int) -> None:
    """Delete all of the tenant's reports but the newest ``kept``."""
    own = ReportRow.tenant_id == tenant.id
    ids = select(ReportRow.id).where(own).order_by(ReportRow.id.desc())
    last = session.scalar(ids.offset(kept).limit(1))
    if last is not None:
        session.execute(
            delete(ReportRow)
            .where(own, ReportRow.id <= last)
            .execution_options(synchronize_session=False)
        )


def delete_report(session: Writer, report: ReportRecord) -> None:
    """Delete a report."""
    session.execute(delete(ReportRow).where(ReportRow.id == report.id))


def _record(row: ReportRow) -> ReportRecord:
    known = ReportSize.__dataclass_fields__
    return ReportRecord(
        id=row.id,
        tenant_id=row.tenant_id,
        since=row.since,
        until=row.until,
        size=ReportSize(**{name: value for name, value in row.size.items() if name in known}),
        made_by="policy" if row.made_by == "policy" else "request",
        content_bytes=row.content_bytes,
        bill_bytes=row.bill_bytes,
    )
