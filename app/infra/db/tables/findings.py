"""Tables of findings: kept verdicts on declared bases, what they follow, and acknowledgements."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Float, ForeignKey, Index, Integer, String, false
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Moment, Name, where

__all__ = ["AcknowledgementRow", "AuditRow", "FindingRow"]


class FindingRow(Base):
    """The last verdict on a model of a space: derived, so it may be lost and is made again.

    ``rank`` is the place of the verdict among those of the space, what matters first; models that
    are not judged yet come last. ``asked`` counts what may have changed the verdict, and
    ``answered`` how much of that the kept verdict knows: it is due where that is less.
    The ids are of the models that it names. There is no foreign key to the space: the rows go with
    the models.
    """

    __tablename__ = "findings"
    __table_args__ = (
        Index(None, "space_id", "rank", "name"),
        # Totals are read from these alone, without the rows.
        Index(None, "space_id", "rank", "is_acknowledged", "tenant_id"),
        Index(None, "tenant_id", "is_acknowledged", "rank", "found_at"),
        Index(
            "ix_findings_due",
            "space_id",
            "judged_version",
            "model_id",
            **where("asked > answered"),
        ),
        Index(None, "base_id"),
        Index(None, "nearest_id"),
        Index(None, "likely_id"),
    )

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    space_id: Mapped[int] = mapped_column(BigInteger)
    name: Mapped[str] = mapped_column(Name)
    rank: Mapped[int] = mapped_column(Integer)
    base: Mapped[str | None] = mapped_column(Name)
    """The base that the verdict is about: the declared one, else the likely one."""
    finding: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    base_id: Mapped[int | None] = mapped_column(BigInteger)
    nearest_id: Mapped[int | None] = mapped_column(BigInteger)
    likely_id: Mapped[int | None] = mapped_column(BigInteger)
    news_from: Mapped[float] = mapped_column(Float, server_default="0")
    """The similarity from which on another model may change the verdict."""
    state: Mapped[str | None] = mapped_column(String(32))
    """What of the model was judged: a digest of its content, its name and its declared bases."""
    asked: Mapped[int] = mapped_column(BigInteger)
    answered: Mapped[int] = mapped_column(BigInteger)
    judged_version: Mapped[int] = mapped_column(BigInteger, server_default="0")
    judged_at: Mapped[datetime | None] = mapped_column(Moment)
    found_at: Mapped[datetime | None] = mapped_column(Moment)
    """When the verdict first named this base."""
    is_acknowledged: Mapped[bool] = mapped_column(Boolean, server_default=false())


class AuditRow(Base):
    """Up to which version the findings of a space follow its changes.

    ``models`` is the number of models when all of them were last asked for.
    """

    __tablename__ = "audits"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    version: Mapped[int] = mapped_column(BigInteger)
    models: Mapped[int] = mapped_column(BigInteger)


class AcknowledgementRow(Base):
    """What was acknowledged of a model: a verdict, and the base that it was about."""

    __tablename__ = "acknowledgements"

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    verdict: Mapped[str] = mapped_column(String(16))
    base: Mapped[str | None] = mapped_column(Name)
    note: Mapped[str | None] = mapped_column(String(500))
    made_by: Mapped[str | None] = mapped_column(String(32))
    made_at: Mapped[datetime] = mapped_column(Moment)
