"""Tables of fingerprints: what is said of each, its payload, and the change feed of a tenant."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Id, Moment, Name

__all__ = [
    "FingerprintFeedRow",
    "FingerprintPayloadRow",
    "FingerprintRow",
    "FingerprintTombstoneRow",
]


class FingerprintRow(Base):
    """The fingerprint of a model name. ``version`` is that of the tenant's feed.

    ``scale`` is a binary logarithm. There is no foreign key to the source, which it outlives. The
    facts were declared beside the weights, and are unchecked: ``base_models`` to ``file_bytes``.
    """

    __tablename__ = "fingerprints"
    __table_args__ = (
        UniqueConstraint("tenant_id", "name"),
        UniqueConstraint("tenant_id", "version"),
        Index(None, "tenant_id", "digest"),
        Index(None, "tenant_id", "created_at"),
        Index(None, "source_id"),
        CheckConstraint("stated_by IN ('hub', 'client')", name="stated_by"),
        {"sqlite_autoincrement": True},  # an id is never used again: indices go by it
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    name: Mapped[str] = mapped_column(Name)
    revision: Mapped[int] = mapped_column(BigInteger)
    scheme: Mapped[str] = mapped_column(String(16))
    scale: Mapped[int] = mapped_column(SmallInteger)
    digest: Mapped[str] = mapped_column(String(71))
    stated_by: Mapped[str] = mapped_column(String(8))
    tensors: Mapped[int] = mapped_column(Integer)
    keys: Mapped[int] = mapped_column(Integer)
    lines: Mapped[dict[str, int]] = mapped_column(JSON)
    parameters: Mapped[int] = mapped_column(BigInteger)
    size: Mapped[int] = mapped_column(Integer)
    base_models: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    base_relation: Mapped[str | None] = mapped_column(String(16))
    license: Mapped[str | None] = mapped_column(String(200))
    published_at: Mapped[datetime | None] = mapped_column(Moment)
    file_bytes: Mapped[int | None] = mapped_column(BigInteger)
    source_id: Mapped[str | None] = mapped_column(String(36))
    hub_revision: Mapped[str | None] = mapped_column(String(200))
    version: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(Moment)
    changed_at: Mapped[datetime] = mapped_column(Moment)


class FingerprintPayloadRow(Base):
    """The payload of a fingerprint in the native format, and the keys that it is found by.

    ``finding_keys`` are its keys at ``finding_scale``, a binary logarithm: each once, ascending, as
    little-endian uint64.
    """

    __tablename__ = "fingerprint_payloads"
    __table_args__ = (Index(None, "tenant_id"),)

    fingerprint_id: Mapped[int] = mapped_column(
        ForeignKey("fingerprints.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    data: Mapped[bytes] = mapped_column(LargeBinary)
    finding_scale: Mapped[int] = mapped_column(SmallInteger)
    finding_keys: Mapped[bytes] = mapped_column(LargeBinary)


class FingerprintFeedRow(Base):
    """The last version of a tenant's fingerprints, and how many there are, for its quotas.

    Each change has the next version under the lock of this row, so versions are committed in order.
    """

    __tablename__ = "fingerprint_feeds"

    tenant_id: Mapped[int] = mapped_column(
        ForeignKey("tenants.id"), primary_key=True, autoincrement=False
    )
    version: Mapped[int] = mapped_column(BigInteger)
    compacted_version: Mapped[int] = mapped_column(BigInteger)
    """Tombstones up to this version may be deleted."""
    fingerprints: Mapped[int] = mapped_column(BigInteger)
    bytes: Mapped[int] = mapped_column(BigInteger)


class FingerprintTombstoneRow(Base):
    """A fingerprint that was removed, for the indices that hold it."""

    __tablename__ = "fingerprint_tombstones"

    tenant_id: Mapped[int] = mapped_column(
        ForeignKey("tenants.id"), primary_key=True, autoincrement=False
    )
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    fingerprint_id: Mapped[int] = mapped_column(BigInteger)
