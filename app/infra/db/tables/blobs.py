"""Tables of blobs on their way out: released by a change, or named by no row."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Moment

__all__ = ["OrphanBlobRow", "ReleasedBlobRow"]


class ReleasedBlobRow(Base):
    """A blob that no row names any more, written in the transaction of the change.

    The blob is deleted after a time of grace, so that earlier copies of the database find it. A key
    that ends with a slash stands for all blobs under it: the blobs of a deleted space.
    """

    __tablename__ = "released_blobs"
    __table_args__ = (Index(None, "released_at"), Index(None, "tenant_id", "released_at"))

    key: Mapped[str] = mapped_column(String(120), primary_key=True)
    released_at: Mapped[datetime] = mapped_column(Moment)
    tenant_id: Mapped[int] = mapped_column(BigInteger)
    size: Mapped[int] = mapped_column(BigInteger)
    """The size in bytes; 0 where it is not known."""


class OrphanBlobRow(Base):
    """A blob that a sweep found and no row named; a later sweep deletes it if that is still so."""

    __tablename__ = "orphan_blobs"

    key: Mapped[str] = mapped_column(String(120), primary_key=True)
    found_at: Mapped[datetime] = mapped_column(Moment)
