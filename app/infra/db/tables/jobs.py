"""Tables of jobs and workers."""

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

from app.infra.db.tables.base import Base, Moment, Name, where

__all__ = ["JobRow", "WorkerRow"]


class JobRow(Base):
    """A job: its public state, and what the workers need to claim and carry it out.

    A row is written in the transaction of the data that the job is about. ``worker`` and
    ``attempts`` together identify the attempt, so that no other can end the job. ``queued_at`` is
    when it was queued again, if it was. ``dispatch_no`` and ``dispatched`` are what the version
    before needs; they go once it cannot run beside this one any more.
    ``dedup_key`` is held until the job ends. There is no foreign key to the space: deleting a space
    never waits for its jobs.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("tenant_id", "kind", "dedup_key"),
        Index(None, "tenant_id", "id"),
        Index(None, "tenant_id", "kind", **where("finished_at IS NULL")),
        Index(None, "state", "id"),
        Index("ix_jobs_failed", "tenant_id", "id", **where("state = 'failed'")),
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
    dispatch_no: Mapped[int] = mapped_column(Integer, default=1)
    dispatched: Mapped[bool] = mapped_column(Boolean, default=False)
    worker: Mapped[str | None] = mapped_column(String(64))
    attempts: Mapped[int] = mapped_column(Integer)
    cancel_requested: Mapped[bool] = mapped_column(Boolean)
    revision: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(Moment)
    not_before: Mapped[datetime | None] = mapped_column(Moment)
    queued_at: Mapped[datetime | None] = mapped_column(Moment)
    started_at: Mapped[datetime | None] = mapped_column(Moment)
    finished_at: Mapped[datetime | None] = mapped_column(Moment)


class WorkerRow(Base):
    """A registered worker: alive while ``heartbeat_seq`` grows.

    The heartbeat is a count and no time, since the clocks of machines differ. Other workers take
    over the jobs of a silent worker.
    """

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    started_at: Mapped[datetime] = mapped_column(Moment)
    heartbeat_seq: Mapped[int] = mapped_column(BigInteger)
