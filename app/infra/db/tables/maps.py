"""The table of maps."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Moment

__all__ = ["MapRow"]


class MapRow(Base):
    """The newest map of a space. ``content`` holds its models and their places, compressed."""

    __tablename__ = "maps"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    id: Mapped[str] = mapped_column(String(36))
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)
    version: Mapped[int] = mapped_column(BigInteger)
    similarity: Mapped[str] = mapped_column(String(16))
    models: Mapped[int] = mapped_column(BigInteger)
    edges: Mapped[int] = mapped_column(BigInteger)
    parts: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(Moment)
    content: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
