"""The tables of sources: hubs whose models are followed, what they delivered, what was seen there.

They share the metadata, and the naming of constraints, of ``tables``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Id, Moment, Name

__all__ = ["HubEventRow", "SourceModelRow", "SourceRow"]


class SourceRow(Base):
    """A hub, or part of one, whose models are followed. ``secret`` and ``token`` are encrypted.

    What follows ``updated_at`` is what has happened, for whoever wonders why nothing comes. No
    foreign key to the space, which ingestion may yet have to make.
    """

    __tablename__ = "sources"
    __table_args__ = (
        Index(None, "tenant_id", "id"),
        Index(None, "next_poll_at"),
        CheckConstraint("kind IN ('huggingface', 'mlflow')", name="kind"),
        CheckConstraint("on_delete IN ('keep', 'remove')", name="on_delete"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    kind: Mapped[str] = mapped_column(String(16))
    space: Mapped[str] = mapped_column(Name)
    url: Mapped[str | None] = mapped_column(String(2000))
    secret: Mapped[bytes] = mapped_column(LargeBinary)
    token: Mapped[bytes | None] = mapped_column(LargeBinary)
    importance: Mapped[str | None] = mapped_column(String(16))
    base_model: Mapped[str | None] = mapped_column(Name)
    filters: Mapped[dict[str, Any]] = mapped_column(JSON)
    on_delete: Mapped[str] = mapped_column(String(16))
    poll_seconds: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(Moment)
    updated_at: Mapped[datetime] = mapped_column(Moment)
    last_delivery_at: Mapped[datetime | None] = mapped_column(Moment)
    last_refusal: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    last_error: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    last_poll: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    last_poll_at: Mapped[datetime | None] = mapped_column(Moment)
    next_poll_at: Mapped[datetime | None] = mapped_column(Moment)


class HubEventRow(Base):
    """A delivery that a source's secret vouched for, once for each of its hub's delivery ids."""

    __tablename__ = "deliveries"
    __table_args__ = (
        UniqueConstraint("source_id", "delivery_id"),
        Index(None, "source_id", "id"),
        Index(None, "received_at"),
        CheckConstraint("outcome IN ('enqueued', 'ignored', 'recorded')", name="outcome"),
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    source_id: Mapped[str] = mapped_column(ForeignKey("sources.id", ondelete="CASCADE"))
    delivery_id: Mapped[str] = mapped_column(String(200))
    event: Mapped[str] = mapped_column(String(200))
    model: Mapped[str | None] = mapped_column(Name)
    revision: Mapped[str | None] = mapped_column(String(200))
    outcome: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(500))
    job_id: Mapped[str | None] = mapped_column(String(36))
    received_at: Mapped[datetime] = mapped_column(Moment)


class SourceModelRow(Base):
    """What was last seen of a model on a source's hub, and what became of it here.

    ``begun`` numbers the looks at it, ``applied`` is the newest that has come to its end: an older
    one that ends later changes nothing. ``looker`` is the job that began one last: while it runs no
    other looks. ``listed`` is False once a listing was without it, and somebody was sent to look.
    """

    __tablename__ = "source_models"

    source_id: Mapped[str] = mapped_column(
        ForeignKey("sources.id", ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(Name, primary_key=True)
    begun: Mapped[int] = mapped_column(BigInteger)
    applied: Mapped[int] = mapped_column(BigInteger)
    looker: Mapped[str | None] = mapped_column(String(36))
    listed: Mapped[bool] = mapped_column(Boolean)
    revision: Mapped[str | None] = mapped_column(String(200))
    space: Mapped[str | None] = mapped_column(Name)
    model: Mapped[str | None] = mapped_column(Name)
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    looked_at: Mapped[datetime | None] = mapped_column(Moment)
