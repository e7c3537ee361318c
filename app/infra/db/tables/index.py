"""The tables of LSH buckets, and of what a space leaves out of its bands."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Id, Moment

__all__ = [
    "BandedSignatureRow",
    "BucketBuildRow",
    "BucketEntryRow",
    "BucketModelRow",
    "StopListRow",
]


class StopListRow(Base):
    """The indices that are everybody's, which a space leaves out of its bands; only of the version
    in force. ``indices`` is the native wire format of a support.
    """

    __tablename__ = "stop_lists"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    indices: Mapped[bytes] = mapped_column(LargeBinary)
    size: Mapped[int] = mapped_column(BigInteger)
    share: Mapped[float] = mapped_column(Float)
    models: Mapped[int] = mapped_column(BigInteger)
    recall: Mapped[list[float | None]] = mapped_column(JSON)
    computed_at: Mapped[datetime] = mapped_column(Moment)


class BandedSignatureRow(Base):
    """The minhashes of what a stop-list leaves of a model's support, little-endian; None where that
    is nothing, or the model sent no support. Of versions that are not in force nothing is believed.
    """

    __tablename__ = "band_values"
    __table_args__ = (
        Index(
            "ix_band_values_unbanded",
            "space_id",
            "version",
            "model_id",
            sqlite_where=text("minhash IS NULL"),
            postgresql_where=text("minhash IS NULL"),
        ),
    )

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    space_id: Mapped[int] = mapped_column(BigInteger)
    minhash: Mapped[bytes | None] = mapped_column(LargeBinary)


class BucketBuildRow(Base):
    """The LSH buckets of a space as they were built once. ``space_id`` is None once they were
    dropped and wait to be swept; no foreign key, so that deleting a space does not wait for it.
    """

    __tablename__ = "bucket_builds"
    __table_args__ = (UniqueConstraint("space_id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    space_id: Mapped[int | None] = mapped_column(BigInteger)
    epoch: Mapped[int] = mapped_column(BigInteger)
    version: Mapped[int] = mapped_column(BigInteger)
    banding_version: Mapped[int] = mapped_column(BigInteger)


class BucketModelRow(Base):
    """The buckets a model is in, as big-endian keys, so that it can be taken out of them."""

    __tablename__ = "bucket_models"
    __table_args__ = ({"sqlite_with_rowid": False},)

    build_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    model_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    keys: Mapped[bytes] = mapped_column(LargeBinary)


class BucketEntryRow(Base):
    """One model in one bucket. The key is 64 unsigned bits, stored as the signed number of the same
    bits. The build stands before it: spaces can never meet in a bucket, whatever their keys.
    """

    __tablename__ = "bucket_entries"
    __table_args__ = ({"sqlite_with_rowid": False},)

    build_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    key: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    model_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
