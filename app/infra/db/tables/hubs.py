"""Tables of sources: followed hubs, the events they sent, and the last sync of each model."""

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
    text,
    true,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Id, Moment, Name

__all__ = ["HubEventRow", "SourceModelRow", "SourceRow"]


class SourceRow(Base):
    """A hub, or a part of one, whose models are followed. ``secret`` and ``token`` are encrypted.

    The columns after ``updated_at`` are the source's status, for its owner. There is no foreign key
    to the space: ingestion may still have to create it.
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
    exclude: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    filters: Mapped[dict[str, Any]] = mapped_column(JSON)
    on_delete: Mapped[str] = mapped_column(String(16))
    poll_seconds: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(Moment)
    updated_at: Mapped[datetime] = mapped_column(Moment)
    last_event_at: Mapped[datetime | None] = mapped_column(Moment)
    last_refusal: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    last_error: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    last_poll: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    last_poll_at: Mapped[datetime | None] = mapped_column(Moment)
    next_poll_at: Mapped[datetime | None] = mapped_column(Moment)
    fingerprints: Mapped[bool] = mapped_column(Boolean, server_default=true())
    backfill_per_hour: Mapped[int | None] = mapped_column(BigInteger)
    next_backfill_at: Mapped[datetime | None] = mapped_column(Moment)


class HubEventRow(Base):
    """An incoming webhook of a source's hub, verified; one row for each id that the hub sent."""

    __tablename__ = "hub_events"
    __table_args__ = (
        UniqueConstraint("source_id", "event_id"),
        Index(None, "source_id", "id"),
        Index(None, "received_at"),
        CheckConstraint("outcome IN ('enqueued', 'ignored', 'recorded')", name="outcome"),
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    source_id: Mapped[str] = mapped_column(ForeignKey("sources.id", ondelete="CASCADE"))
    event_id: Mapped[str] = mapped_column(String(200))
    event: Mapped[str] = mapped_column(String(200))
    model: Mapped[str | None] = mapped_column(Name)
    revision: Mapped[str | None] = mapped_column(String(200))
    outcome: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(500))
    job_id: Mapped[str | None] = mapped_column(String(36))
    received_at: Mapped[datetime] = mapped_column(Moment)


class SourceModelRow(Base):
    """A model on a source's hub at its last sync, and the place where it is stored here.

    ``sync_started_seq`` is the sequence number of the last sync, ``sync_applied_seq`` that of the
    newest sync that has ended: an older sync that ends later changes nothing. ``sync_job_id`` is
    the job of the last sync; at most one runs at a time. ``listed`` is False once a listing lacked
    the model, and a sync of it was requested.
    """

    __tablename__ = "source_models"
    __table_args__ = (
        Index(
            "ix_source_models_without_fingerprint",
            "source_id",
            sqlite_where=text("fingerprint_state IS NULL"),
            postgresql_where=text("fingerprint_state IS NULL"),
        ),
    )

    source_id: Mapped[str] = mapped_column(
        ForeignKey("sources.id", ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(Name, primary_key=True)
    sync_started_seq: Mapped[int] = mapped_column(BigInteger)
    sync_applied_seq: Mapped[int] = mapped_column(BigInteger)
    sync_job_id: Mapped[str | None] = mapped_column(String(36))
    listed: Mapped[bool] = mapped_column(Boolean)
    revision: Mapped[str | None] = mapped_column(String(200))
    space: Mapped[str | None] = mapped_column(Name)
    model: Mapped[str | None] = mapped_column(Name)
    delta_space: Mapped[str | None] = mapped_column(Name)
    """The space of its difference from its base, under the same name; NULL without one."""
    components: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """The places of a pipeline's components, by their names; NULL for any other model."""
    tags_digest: Mapped[str | None] = mapped_column(String(32))
    """The digest of the tags on the hub when last seen; NULL where no listing has been read."""
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    synced_at: Mapped[datetime | None] = mapped_column(Moment)
    hub_changed_at: Mapped[datetime | None] = mapped_column(Moment)
    """The last change on the hub, as far as it says so."""
    fingerprints: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """What the last reading for a fingerprint found, by component; "" is the model itself."""
    fingerprint_state: Mapped[str | None] = mapped_column(String(8))
    """``read``, or ``none`` of a model that can have no fingerprint; NULL of one that is to be
    read."""
    fingerprint_asked_at: Mapped[datetime | None] = mapped_column(Moment)
    """When a sync was enqueued for its fingerprint alone; NULL where none is needed, or was yet."""
