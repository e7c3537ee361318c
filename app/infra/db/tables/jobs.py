"""The tables of jobs, and of those who carry them out."""

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
    Integer,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Moment, Name

__all__ = ["JobRow", "WorkerRow"]


class JobRow(Base):
    """A job: what the API shows of it, and what the workers still have to take from here.

    A row is written in the transaction of the data that it follows. ``turn`` numbers the times it
    was offered to the workers, ``handed`` says that the present offer was taken over; ``worker``
    and ``attempts`` name who carries it out, so that nobody else can end it. ``dedup_key`` is held
    until it ends. No foreign key to the space: deleting one never waits for its jobs.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("tenant_id", "kind", "dedup_key"),
        Index(None, "tenant_id", "id"),
        Index(None, "state", "id"),
        Index(None, "finished_at"),
        CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state"
        ),
        CheckConstraint(
            "(finished_at IS NULL) = (state IN ('queued', 'running'))", name="finished"
        ),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    space_id: Mapped[int | None] = mapped_column(BigInteger)
    space: Mapped[str | None] = mapped_column(Name)
    kind: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)
    progress: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    dedup_key: Mapped[str | None] = mapped_column(String(200))
    turn: Mapped[int] = mapped_column(Integer)
    handed: Mapped[bool] = mapped_column(Boolean)
    worker: Mapped[str | None] = mapped_column(String(64))
    attempts: Mapped[int] = mapped_column(Integer)
    cancelling: Mapped[bool] = mapped_column(Boolean)
    revision: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(Moment)
    not_before: Mapped[datetime | None] = mapped_column(Moment)
    started_at: Mapped[datetime | None] = mapped_column(Moment)
    finished_at: Mapped[datetime | None] = mapped_column(Moment)


class WorkerRow(Base):
    """A worker that lives, as long as ``beat`` grows. Others take over what a silent one held."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    started_at: Mapped[datetime] = mapped_column(Moment)
    beat: Mapped[int] = mapped_column(BigInteger)
