"""The table of the weights that supports were made from: digests, and no values."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Moment

__all__ = ["ModelWeightsRow"]


class ModelWeightsRow(Base):
    """The weights of a model's ``revision``; they say nothing of a later revision.

    ``tensors`` are the names and the first half of the digests of the tensors, as compressed JSON.
    """

    __tablename__ = "model_weights"
    __table_args__ = (Index(None, "tenant_id", "digest"),)

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    revision: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[bytes] = mapped_column(LargeBinary(32))
    tensors: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    files: Mapped[int] = mapped_column(Integer)
    size: Mapped[int] = mapped_column(BigInteger)
    dtypes: Mapped[dict[str, int]] = mapped_column(JSON)
    stated_by: Mapped[str] = mapped_column(String(8))
    stated_at: Mapped[datetime] = mapped_column(Moment)
