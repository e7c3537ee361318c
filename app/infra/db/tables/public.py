"""Tables of public spaces, and of the queries that tenants made of them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Float, ForeignKey, Index, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Moment, Name

__all__ = ["PublicQueryCountRow", "PublicSpaceRow"]


class PublicSpaceRow(Base):
    """A space that every tenant may ask for neighbours.

    Every tenant may read all of it: it repeats the names of its tenant and its space, so that a
    search for a public space needs no other row of another tenant.
    """

    __tablename__ = "public_spaces"
    __table_args__ = (UniqueConstraint("owner", "space"),)

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    owner: Mapped[str] = mapped_column(Name)
    space: Mapped[str] = mapped_column(Name)
    step: Mapped[float] = mapped_column(Float)
    floor: Mapped[float] = mapped_column(Float)
    daily_queries: Mapped[int] = mapped_column(Integer)
    description: Mapped[str] = mapped_column(String(500))
    created_at: Mapped[datetime] = mapped_column(Moment)


class PublicQueryCountRow(Base):
    """The number of queries that a tenant has made of a public space in a day, counted from 1970.

    The count belongs to the space itself, which may stop being public and become so again on that
    day.
    """

    __tablename__ = "public_query_counts"
    __table_args__ = (Index(None, "day"),)

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    day: Mapped[int] = mapped_column(Integer)
    queries: Mapped[int] = mapped_column(Integer)
