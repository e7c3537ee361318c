"""Tables of outgoing webhooks: subscriptions, the outbox of events, and deliveries."""

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

from app.infra.db.tables.base import Base, Moment, Name, where

__all__ = ["EventRow", "WebhookDeliveryRow", "SubscriptionRow"]


class SubscriptionRow(Base):
    """A receiver's URL and the events it gets. ``secret`` and ``previous_secrets`` are encrypted.

    The columns after ``previous_until`` are the state of its receiver. There is no foreign key to
    the space: a subscription names it, and outlives it.
    """

    __tablename__ = "subscriptions"
    __table_args__ = (Index(None, "tenant_id", "id"),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    url: Mapped[str] = mapped_column(String(2000))
    events: Mapped[list[str]] = mapped_column(JSON)
    space: Mapped[str | None] = mapped_column(Name)
    model: Mapped[str | None] = mapped_column(Name)
    tag: Mapped[str | None] = mapped_column(Name)
    threshold: Mapped[float | None] = mapped_column(Float)
    description: Mapped[str | None] = mapped_column(String(2000))
    secret: Mapped[bytes] = mapped_column(LargeBinary)
    previous_secrets: Mapped[bytes | None] = mapped_column(LargeBinary)
    previous_until: Mapped[datetime | None] = mapped_column(Moment)
    enabled: Mapped[bool] = mapped_column(Boolean)
    disabled_reason: Mapped[str | None] = mapped_column(String(2000))
    failures: Mapped[int] = mapped_column(Integer)
    """The failed attempts since the last success."""
    failing_since: Mapped[datetime | None] = mapped_column(Moment)
    paused_until: Mapped[datetime | None] = mapped_column(Moment)
    last_success_at: Mapped[datetime | None] = mapped_column(Moment)
    last_failure: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(Moment)
    updated_at: Mapped[datetime] = mapped_column(Moment)


class EventRow(Base):
    """An event of the outbox, written in the transaction of the change that it reports.

    ``fanned_out`` is True once its deliveries exist. ``neighbors_compared`` is True if a later
    revision's neighbours stand in for this revision's. ``tags`` are the model's tags at that time;
    ``due_at`` is the time of the next try of a failed fan-out.
    """

    __tablename__ = "events"
    __table_args__ = (
        Index(None, "fanned_out", "tenant_id", "id"),
        Index(None, "space_id", "fanned_out", "id"),
        Index(None, "model_id", "fanned_out", "id"),
        Index(None, "created_at"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    type: Mapped[str] = mapped_column(String(32))
    space_id: Mapped[int] = mapped_column(BigInteger)
    space: Mapped[str] = mapped_column(Name)
    model: Mapped[str | None] = mapped_column(Name)
    model_id: Mapped[int | None] = mapped_column(BigInteger)
    revision: Mapped[int | None] = mapped_column(BigInteger)
    tags: Mapped[list[str]] = mapped_column(JSON)
    data: Mapped[dict[str, Any]] = mapped_column(JSON)
    fanned_out: Mapped[bool] = mapped_column(Boolean)
    neighbors_compared: Mapped[bool] = mapped_column(Boolean)
    failures: Mapped[int] = mapped_column(Integer)
    due_at: Mapped[datetime | None] = mapped_column(Moment)
    created_at: Mapped[datetime] = mapped_column(Moment)


class WebhookDeliveryRow(Base):
    """One event for one subscription: the body, and a log of all attempts.

    ``due_at`` is the time of the next attempt; during an attempt, the time from which another
    worker may assume that it was lost.
    """

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        UniqueConstraint("subscription_id", "event_id", "type"),
        Index(None, "subscription_id", "id"),
        Index(None, "tenant_id", "finished_at"),
        Index("ix_webhook_deliveries_failed", "tenant_id", "id", **where("state = 'failed'")),
        Index(None, "subscription_id", "due_at", "id", **where("due_at IS NOT NULL")),
        Index(None, "finished_at"),
        CheckConstraint("state IN ('pending', 'succeeded', 'failed')", name="state"),
        CheckConstraint("(state = 'pending') = (due_at IS NOT NULL)", name="due"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(BigInteger)
    subscription_id: Mapped[str] = mapped_column(ForeignKey("subscriptions.id", ondelete="CASCADE"))
    event_id: Mapped[str] = mapped_column(String(36))
    type: Mapped[str] = mapped_column(String(32))
    body: Mapped[bytes] = mapped_column(LargeBinary)
    state: Mapped[str] = mapped_column(String(16))
    attempts: Mapped[int] = mapped_column(Integer)
    """The attempts of the present round: a replay begins at 0 again."""
    log: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    due_at: Mapped[datetime | None] = mapped_column(Moment)
    created_at: Mapped[datetime] = mapped_column(Moment)
    finished_at: Mapped[datetime | None] = mapped_column(Moment)
