"""Tables of clusterings and their policies."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Moment

__all__ = ["ClusteringPolicyRow", "ClusteringRow", "ClusteringSeriesRow"]


class ClusteringRow(Base):
    """A finished clustering. ``number`` counts the clusterings of its space.

    ``scope`` is "" for all models. ``content`` holds the models and their clusters, compressed.
    """

    __tablename__ = "clusterings"
    __table_args__ = (
        UniqueConstraint("space_id", "number"),
        Index(None, "space_id", "scope", "number"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    space_id: Mapped[int] = mapped_column(ForeignKey("spaces.id", ondelete="CASCADE"))
    number: Mapped[int] = mapped_column(BigInteger)
    scope: Mapped[str] = mapped_column(String(32))
    algorithm: Mapped[str] = mapped_column(String(32))
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)
    chosen: Mapped[dict[str, Any]] = mapped_column(JSON)
    version: Mapped[int] = mapped_column(BigInteger)
    similarity: Mapped[str] = mapped_column(String(16))
    models: Mapped[int] = mapped_column(BigInteger)
    clusters: Mapped[int] = mapped_column(BigInteger)
    noise: Mapped[int] = mapped_column(BigInteger)
    quality: Mapped[dict[str, Any]] = mapped_column(JSON)
    previous: Mapped[str | None] = mapped_column(String(36))
    agreement: Mapped[float | None] = mapped_column(Float)
    seconds: Mapped[float] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(Moment)
    content: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)


class ClusteringSeriesRow(Base):
    """The last number of a clustering in a space, and the next free id of a cluster."""

    __tablename__ = "clustering_series"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(BigInteger)
    next_cluster: Mapped[int] = mapped_column(BigInteger)


class ClusteringPolicyRow(Base):
    """The terms on which a space is clustered again. Versions are the space's.

    ``done_*`` describe the last clustering under the policy, ``tried_*`` the last requested one,
    whatever its outcome, after ``failures``. ``seen_*`` describe the newest version that was
    noticed. ``due_since`` is set while a clustering is due.
    """

    __tablename__ = "clustering_policies"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    after_changes: Mapped[int | None] = mapped_column(BigInteger)
    every_seconds: Mapped[int | None] = mapped_column(BigInteger)
    debounce_seconds: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(Moment)
    updated_at: Mapped[datetime] = mapped_column(Moment)
    done_version: Mapped[int] = mapped_column(BigInteger)
    done_at: Mapped[datetime | None] = mapped_column(Moment)
    seen_version: Mapped[int] = mapped_column(BigInteger)
    seen_at: Mapped[datetime] = mapped_column(Moment)
    due_since: Mapped[datetime | None] = mapped_column(Moment)
    tried_job: Mapped[str | None] = mapped_column(String(36))
    tried_version: Mapped[int] = mapped_column(BigInteger, server_default="0")
    failures: Mapped[int] = mapped_column(Integer, server_default="0")
