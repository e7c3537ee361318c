"""Tables of LSH buckets and packed sketches, and two that 0.1.0 has for stop-lists."""

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
    String,
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
    "SketchSegmentRow",
    "StopListRow",
]


class StopListRow(Base):
    """A stop-list of 0.1.0, which works on the same database during an upgrade; none is read."""

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
    """A model's MinHash values after a stop-list of 0.1.0, which this version does not read."""

    __tablename__ = "banded_signatures"
    __table_args__ = (
        Index(
            "ix_banded_signatures_unbanded",
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
    """One build of a space's LSH buckets.

    ``space_id`` is NULL once the build is dropped and waits for the sweep. There is no foreign key,
    so that deleting a space does not wait for it.
    """

    __tablename__ = "bucket_builds"
    __table_args__ = (UniqueConstraint("space_id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    space_id: Mapped[int | None] = mapped_column(BigInteger)
    epoch: Mapped[int] = mapped_column(BigInteger)
    version: Mapped[int] = mapped_column(BigInteger)
    banding_version: Mapped[int] = mapped_column(BigInteger)


class BucketModelRow(Base):
    """The big-endian keys of all buckets that hold a model, so that it can be removed from them."""

    __tablename__ = "bucket_models"
    __table_args__ = ({"sqlite_with_rowid": False},)

    build_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    model_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    keys: Mapped[bytes] = mapped_column(LargeBinary)


class BucketEntryRow(Base):
    """One model in one bucket. The key, 64 unsigned bits, is stored as their signed number."""

    __tablename__ = "bucket_entries"
    __table_args__ = ({"sqlite_with_rowid": False},)

    build_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    key: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    model_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)


class SketchSegmentRow(Base):
    """The sketches of some models of a space, by ids, packed into one object of a store.

    A process claims a range before it packs it; without a key it has not finished.
    """

    __tablename__ = "sketch_segments"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    first_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    last_id: Mapped[int] = mapped_column(BigInteger)
    key: Mapped[str | None] = mapped_column(String(120))
    claimed_at: Mapped[datetime] = mapped_column(Moment)
