"""Tables of anatomies: what stored models are to each other, as it was measured."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    ColumnElement,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    false,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Moment, where

__all__ = ["AnatomyRow", "KinRow"]


class AnatomyRow(Base):
    """The last anatomy of a fingerprint; without a verdict before the first.

    ``due_at`` is set while it has to be made: because the fingerprint has changed (``is_changed``),
    or another one came. ``hint`` is a fingerprint to compare then, whether the index finds it or
    not.
    """

    __tablename__ = "anatomies"
    __table_args__ = (
        Index(None, "tenant_id", "due_at", **where("due_at IS NOT NULL")),
        Index(None, "tenant_id", "verdict", "fingerprint_id"),
        Index(None, "tenant_id", "base_id", **where("base_id IS NOT NULL")),
    )

    fingerprint_id: Mapped[int] = mapped_column(
        ForeignKey("fingerprints.id", ondelete="CASCADE"), primary_key=True
    )
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    due_at: Mapped[datetime | None] = mapped_column(Moment)
    is_changed: Mapped[bool] = mapped_column(Boolean)
    hint: Mapped[int | None] = mapped_column(BigInteger)
    failures: Mapped[int] = mapped_column(Integer, server_default="0")
    verdict: Mapped[str | None] = mapped_column(String(16))
    relations: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))
    parents: Mapped[list[int] | None] = mapped_column(JSON(none_as_null=True))
    base_id: Mapped[int | None] = mapped_column(BigInteger)
    """The fingerprint whose family it is of; NULL of a root."""
    first_share: Mapped[float] = mapped_column(Float, server_default="0")
    covered: Mapped[float] = mapped_column(Float, server_default="0")
    compared: Mapped[int] = mapped_column(BigInteger, server_default="0")
    common: Mapped[int] = mapped_column(Integer, server_default="0")
    truncated: Mapped[bool] = mapped_column(Boolean, server_default=false())
    made_at: Mapped[datetime | None] = mapped_column(Moment)


class KinRow(Base):
    """What a fingerprint is to another one. Each pair of kin has a row in either order."""

    __tablename__ = "kin"
    __table_args__ = (Index(None, "other_id"), Index(None, "tenant_id", "verdict"))

    fingerprint_id: Mapped[int] = mapped_column(
        ForeignKey("fingerprints.id", ondelete="CASCADE"), primary_key=True
    )
    other_id: Mapped[int] = mapped_column(
        ForeignKey("fingerprints.id", ondelete="CASCADE"), primary_key=True
    )
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    verdict: Mapped[str] = mapped_column(String(16))
    relation: Mapped[str] = mapped_column(String(32))
    sentence: Mapped[str] = mapped_column(Text)
    share: Mapped[float] = mapped_column(Float)
    share_of_other: Mapped[float] = mapped_column(Float)
    share_of_parameters: Mapped[float] = mapped_column(Float)
    keys: Mapped[int] = mapped_column(Integer)
    expected: Mapped[float] = mapped_column(Float)
    log10_p: Mapped[float] = mapped_column(Float)
    made_at: Mapped[datetime] = mapped_column(Moment)

    @classmethod
    def of(cls, tenant_id: int) -> ColumnElement[bool]:
        """The rows of a tenant, for queries that find them by fingerprints.

        A sum is in no index: SQLite would take that of the tenant, and read all of its kin.
        """
        return cls.tenant_id + 0 == tenant_id
