"""Tables of reports, and of the policies by which they are made."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Moment

__all__ = ["ReportPolicyRow", "ReportRow"]


class ReportRow(Base):
    """A report of a tenant. ``content`` is the whole of it, and ``bill`` its bill of materials.

    Both are compressed. A report has no bill where the library for it is not installed.
    """

    __tablename__ = "reports"
    __table_args__ = (Index(None, "tenant_id", "id"),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    since: Mapped[datetime | None] = mapped_column(Moment)
    until: Mapped[datetime] = mapped_column(Moment)
    size: Mapped[dict[str, Any]] = mapped_column(JSON)
    made_by: Mapped[str] = mapped_column(String(8))
    content: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    content_bytes: Mapped[int] = mapped_column(BigInteger)
    bill: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)
    bill_bytes: Mapped[int] = mapped_column(BigInteger)


class ReportPolicyRow(Base):
    """When a tenant's reports are made by themselves, and how many of them are kept."""

    __tablename__ = "report_policies"

    tenant_id: Mapped[int] = mapped_column(
        ForeignKey("tenants.id"), primary_key=True, autoincrement=False
    )
    every_seconds: Mapped[int] = mapped_column(BigInteger)
    keep: Mapped[int] = mapped_column(Integer)
    last_at: Mapped[datetime | None] = mapped_column(Moment)
    next_at: Mapped[datetime] = mapped_column(Moment, index=True)
