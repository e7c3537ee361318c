"""Tables of spaces, models, revisions, signatures, sketches and tags."""

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

from app.infra.db.tables.base import Base, Id, Moment, Name

__all__ = [
    "ModelRow",
    "TombstoneRow",
    "RevisionRow",
    "SignatureRow",
    "SupportSizeReportRow",
    "SketchRow",
    "SpaceRow",
    "TagRow",
]


class SpaceRow(Base):
    __tablename__ = "spaces"
    __table_args__ = (
        UniqueConstraint("tenant_id", "name"),
        {"sqlite_autoincrement": True},  # an id is never used again: blobs and the index go by it
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    name: Mapped[str] = mapped_column(Name)
    num_parameters: Mapped[int] = mapped_column(BigInteger)
    layout: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))
    scheme: Mapped[str] = mapped_column(String(16))
    num_perm: Mapped[int] = mapped_column(Integer)
    seed: Mapped[int] = mapped_column(BigInteger)
    version: Mapped[int] = mapped_column(BigInteger, default=0)
    supports: Mapped[int] = mapped_column(BigInteger, default=0)
    signatures: Mapped[int] = mapped_column(BigInteger, default=0)
    created_at: Mapped[datetime] = mapped_column(Moment)
    bucket_epoch: Mapped[int | None] = mapped_column(BigInteger)
    bands: Mapped[int] = mapped_column(Integer, server_default="64")
    band_rows: Mapped[int] = mapped_column(Integer, server_default="4")
    banding_version: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """The stop-list in force; 0 without one."""
    stop_lists_begun: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """The last version given out: versions only grow, whether their lists came to be or not."""
    removal_horizon: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Removals up to this version may have been deleted: see ``app.index.change_repository``."""
    size_policy: Mapped[str] = mapped_column(String(16), server_default="free")
    fixed_size: Mapped[int | None] = mapped_column(BigInteger)


class ModelRow(Base):
    """One model of a space. ``version`` is the space's when it last changed: read in that order
    from some version on, the table is its own change log (removals are kept beside it).
    """

    __tablename__ = "models"
    __table_args__ = (
        UniqueConstraint("space_id", "name"),
        Index(None, "space_id", "version"),
        Index(None, "blob_key"),  # what the sweep after a crash asks
        CheckConstraint("kind IN ('support', 'signature')", name="kind"),
        CheckConstraint("(kind = 'support') = (blob_key IS NOT NULL)", name="blob"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    space_id: Mapped[int] = mapped_column(ForeignKey("spaces.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(Name)
    kind: Mapped[str] = mapped_column(String(16))
    support_size: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str | None] = mapped_column(String(80))
    blob_key: Mapped[str | None] = mapped_column(String(120))
    revision: Mapped[int] = mapped_column(BigInteger)
    version: Mapped[int] = mapped_column(BigInteger)
    attributes: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    source: Mapped[str | None] = mapped_column(String)
    base_model: Mapped[str | None] = mapped_column(Name)
    created_at: Mapped[datetime] = mapped_column(Moment)
    updated_at: Mapped[datetime] = mapped_column(Moment)
    # Drawn at random with every change of what the model is, so that a cache marked with it never
    # takes one content for another, not even of a database that was restored from a copy. 0 where
    # there is a signature and nothing more: no support, and no sketch either.
    content_id: Mapped[int] = mapped_column(BigInteger, server_default="0")


class RevisionRow(Base):
    """A content that a model has or had, once it has had more than one; a model that never changed
    has no row here, for the one of ``models`` says it all.

    ``blob_key`` is None where the support is kept no more, or never was sent. ``minhash`` is the
    signature, and only the first row of a model has it: later ones are held against that for ever.
    The self-overlaps J are with the revision before and with that first one.
    """

    __tablename__ = "revisions"
    __table_args__ = (Index(None, "blob_key"),)  # what the sweep after a crash asks

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    revision: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(16))
    support_size: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str | None] = mapped_column(String(80))
    blob_key: Mapped[str | None] = mapped_column(String(120))
    minhash: Mapped[bytes | None] = mapped_column(LargeBinary)
    previous_overlap: Mapped[float | None] = mapped_column(Float)
    previous_exact: Mapped[bool | None] = mapped_column(Boolean)
    first_overlap: Mapped[float] = mapped_column(Float)
    first_exact: Mapped[bool] = mapped_column(Boolean)
    created_at: Mapped[datetime] = mapped_column(Moment)


class SignatureRow(Base):
    """The MinHash values of a model, little-endian, all ``num_perm`` of them at full width."""

    __tablename__ = "signatures"

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    values: Mapped[bytes] = mapped_column(LargeBinary)


class SketchRow(Base):
    """The sketch that a model of a signature alone sent as well, in its native format."""

    __tablename__ = "sketches"

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    data: Mapped[bytes] = mapped_column(LargeBinary)


class SupportSizeReportRow(Base):
    """The K* that a client of a space found: one a reporter, the last it told."""

    __tablename__ = "size_reports"
    __table_args__ = (Index(None, "space_id", "k_star"),)

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    reporter: Mapped[str] = mapped_column(Name, primary_key=True)
    k_star: Mapped[int] = mapped_column(BigInteger)
    reported_at: Mapped[datetime] = mapped_column(Moment)


class TagRow(Base):
    __tablename__ = "tags"
    __table_args__ = (Index(None, "tag", "model_id"),)

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    tag: Mapped[str] = mapped_column(Name, primary_key=True)


class TombstoneRow(Base):
    """A model that was removed, so that an index which has seen it can forget it."""

    __tablename__ = "removals"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    model_id: Mapped[int] = mapped_column(BigInteger)
