"""Tables of merges: parties average models through the service, which opens nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Moment, Name

__all__ = ["MergeCellRow", "MergePartyRow", "MergeRow"]


class MergeRow(Base):
    """A merge. ``roster`` and what follows from it are set when joining ends.

    ``due_at`` is the time when the present state ends by itself; None once the merge has ended.
    ``size`` is the most bytes that its cells take.
    """

    __tablename__ = "merges"
    __table_args__ = (
        UniqueConstraint("space_id", "name"),
        Index(None, "tenant_id", "ended_at"),
        Index(None, "ended_at"),
        CheckConstraint(
            "state IN ('joining', 'sending', 'combining', 'done', 'failed')", name="state"
        ),
        CheckConstraint("(ended_at IS NULL) = (state NOT IN ('done', 'failed'))", name="ended"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    space_id: Mapped[int] = mapped_column(ForeignKey("spaces.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(Name)
    state: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int] = mapped_column(Integer)
    revision: Mapped[int] = mapped_column(BigInteger)
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    plan: Mapped[dict[str, Any]] = mapped_column(JSON)
    weights: Mapped[dict[str, float] | None] = mapped_column(JSON(none_as_null=True))
    """Each member's weight, settled at the creation; None where members bring their own."""
    roster: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    digest: Mapped[str | None] = mapped_column(String(64))
    peak: Mapped[float | None] = mapped_column(Float)
    failure: Mapped[str | None] = mapped_column(String(2000))
    size: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(Moment)
    due_at: Mapped[datetime | None] = mapped_column(Moment)
    ended_at: Mapped[datetime | None] = mapped_column(Moment)


class MergePartyRow(Base):
    """A member that is awaited or has joined, or a neutral party that has joined."""

    __tablename__ = "merge_parties"
    __table_args__ = (
        CheckConstraint("(public_key IS NULL) = (token_digest IS NULL)", name="joined"),
    )

    merge_id: Mapped[str] = mapped_column(
        ForeignKey("merges.id", ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(Name, primary_key=True)
    neutral: Mapped[bool] = mapped_column(Boolean)
    public_key: Mapped[bytes | None] = mapped_column(LargeBinary)
    token_digest: Mapped[bytes | None] = mapped_column(LargeBinary)
    """SHA-256."""
    examples: Mapped[int | None] = mapped_column(BigInteger)
    peak: Mapped[float | None] = mapped_column(Float)
    may_aggregate: Mapped[bool] = mapped_column(Boolean)
    verdict: Mapped[int | None] = mapped_column(Integer)
    """The last attempt of which this aggregator found all cells good."""
    left_out: Mapped[str | None] = mapped_column(String(2000))
    """The reason why it does not count, in the present attempt or from the beginning."""


class MergeCellRow(Base):
    """A sealed piece in the blob store: a member's cell, or an aggregator's result."""

    __tablename__ = "merge_cells"
    __table_args__ = (Index(None, "blob_key"),)

    merge_id: Mapped[str] = mapped_column(
        ForeignKey("merges.id", ondelete="CASCADE"), primary_key=True
    )
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    is_result: Mapped[bool] = mapped_column(Boolean, primary_key=True)
    shard: Mapped[int] = mapped_column(Integer, primary_key=True)
    piece: Mapped[int] = mapped_column(Integer, primary_key=True)
    place: Mapped[int] = mapped_column(Integer, primary_key=True)
    """The place of the sender in the roster."""
    digest: Mapped[bytes] = mapped_column(LargeBinary)
    blob_key: Mapped[str] = mapped_column(String(120))
    size: Mapped[int] = mapped_column(BigInteger)
