"""Tables of the installation, its tenants, their API keys, sessions and idempotency keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Id, Moment, Name

__all__ = ["ApiKeyRow", "IdempotencyKeyRow", "InstallationRow", "TenantRow", "VisitorSessionRow"]


class InstallationRow(Base):
    """The identity of this database, in one row: it is part of every key in a blob store.

    ``lineage`` is drawn again with each sweep of the blobs, which writes it beside them as well. A
    copy of the database that is started later has an older one, and deletes nothing.
    """

    __tablename__ = "installation"

    token: Mapped[str] = mapped_column(String(32), primary_key=True)
    lineage: Mapped[str | None] = mapped_column(String(32))
    swept_at: Mapped[datetime | None] = mapped_column(Moment)
    """The time when the last sweep of the blobs began."""
    store_id: Mapped[str | None] = mapped_column(String(32))
    """The id of the store of the blobs, which has it, too; None before the first start on one."""
    noise_key: Mapped[bytes | None] = mapped_column(LargeBinary(32))
    """The key of the noise of public spaces, used for nothing else; a migration drew it."""


class TenantRow(Base):
    """An owner of data. ``quotas`` are those that differ from the settings, by name."""

    __tablename__ = "tenants"
    __table_args__ = (UniqueConstraint("name"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(Name)
    quotas: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class ApiKeyRow(Base):
    """An API key: its SHA-256, by which it is looked up. 256 random bits need no slower hash."""

    __tablename__ = "api_keys"
    __table_args__ = (UniqueConstraint("sha256"), UniqueConstraint("prefix"))

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    prefix: Mapped[str] = mapped_column(String(16))
    sha256: Mapped[bytes] = mapped_column(LargeBinary(32))
    label: Mapped[str] = mapped_column(String(200))
    scopes: Mapped[list[str]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(Moment)
    expires_at: Mapped[datetime | None] = mapped_column(Moment)
    revoked_at: Mapped[datetime | None] = mapped_column(Moment)
    last_used_at: Mapped[datetime | None] = mapped_column(Moment)
    """The hour of its last use, as far as it is written down."""


class VisitorSessionRow(Base):
    """A session of a visitor of the explorer: the SHA-256 of its token, its key and its end."""

    __tablename__ = "visitor_sessions"
    __table_args__ = (
        UniqueConstraint("sha256"),
        Index(None, "key_id", "id"),
        Index(None, "expires_at"),
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    key_id: Mapped[int] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    sha256: Mapped[bytes] = mapped_column(LargeBinary(32))
    expires_at: Mapped[datetime] = mapped_column(Moment)


class IdempotencyKeyRow(Base):
    """The key of a request that may be sent again, and its answer, for a day.

    There are two columns of answers, of which ``secret_answer`` is encrypted. While the request is
    carried out both are NULL.
    """

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        UniqueConstraint("tenant_id", "key"),
        Index(None, "tenant_id", "created_at"),
        Index(None, "created_at"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    key: Mapped[str] = mapped_column(String(255))
    fingerprint: Mapped[bytes] = mapped_column(LargeBinary(32))
    status: Mapped[int | None] = mapped_column(Integer)
    location: Mapped[str | None] = mapped_column(String(2000))
    answer: Mapped[bytes | None] = mapped_column(LargeBinary)
    secret_answer: Mapped[bytes | None] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(Moment)
