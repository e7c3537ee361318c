"""Tables of learngenes: manifests of newcomers' starting points, by cluster and version."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Moment

__all__ = ["LearngeneRow", "LearngeneSeriesRow"]


class LearngeneRow(Base):
    """A version of a cluster's learngene; its file is in the blob ``blob_key``, if it is kept.

    ``cluster`` is the lasting id, -1 for the whole space. ``scope`` is the scope of the clustering
    with the cluster. ``stored_bytes`` count for the quota: the bytes of the file, if it is kept,
    and of ``tensors``.
    """

    __tablename__ = "learngenes"
    __table_args__ = (
        UniqueConstraint("space_id", "cluster", "version"),
        Index(None, "space_id", "id"),
        Index(None, "tenant_id"),
        Index(None, "blob_key"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    space_id: Mapped[int] = mapped_column(ForeignKey("spaces.id", ondelete="CASCADE"))
    cluster: Mapped[int] = mapped_column(BigInteger)
    version: Mapped[int] = mapped_column(BigInteger)
    clustering: Mapped[str | None] = mapped_column(String(36))
    scope: Mapped[str] = mapped_column(String(32))
    digest: Mapped[str] = mapped_column(String(71))
    size: Mapped[int] = mapped_column(BigInteger)
    num_tensors: Mapped[int] = mapped_column(Integer)
    reference: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    blob_key: Mapped[str | None] = mapped_column(String(120))
    stored_bytes: Mapped[int] = mapped_column(BigInteger)
    members: Mapped[int | None] = mapped_column(BigInteger)
    rounds: Mapped[int | None] = mapped_column(BigInteger)
    metrics: Mapped[dict[str, float]] = mapped_column(JSON)
    note: Mapped[str | None] = mapped_column(String(2000))
    published_by: Mapped[str | None] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(Moment)
    tensors: Mapped[list[Any]] = mapped_column(JSON, deferred=True)
    """Name, type and shape of each, in the order of their bytes."""


class LearngeneSeriesRow(Base):
    """The last version of a cluster's learngene, which counts on when that is deleted."""

    __tablename__ = "learngene_series"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    cluster: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    version: Mapped[int] = mapped_column(BigInteger)
