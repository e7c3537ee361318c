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
    false,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.infra.db.tables.base import Base, Id, Moment, Name, where

__all__ = [
    "LayoutRow",
    "ModelRow",
    "TombstoneRow",
    "RevisionRow",
    "SignatureRow",
    "SupportSizeReportRow",
    "SketchRow",
    "SpaceRow",
    "TagRow",
    "TensorCountsRow",
]

_UNMEASURED = "blob_size IS NULL AND blob_key IS NOT NULL"
"""Blobs that were stored before their sizes were: soon there are none."""


class SpaceRow(Base):
    __tablename__ = "spaces"
    __table_args__ = (
        UniqueConstraint("tenant_id", "name"),
        # Each put sums these columns for quotas. To reach them in a row, SQLite reads the layout,
        # too. Postgres does not, and updates a row faster without the index.
        Index(None, "tenant_id", "supports", "signatures", "support_bytes").ddl_if("sqlite"),
        {"sqlite_autoincrement": True},  # an id is never used again: blobs and the index go by it
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    name: Mapped[str] = mapped_column(Name)
    num_parameters: Mapped[int] = mapped_column(BigInteger)
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
    banding_version: Mapped[int] = mapped_column(BigInteger, server_default="0", deferred=True)
    stop_list_seq: Mapped[int] = mapped_column(BigInteger, server_default="0", deferred=True)
    """Unused here. Kept, as is ``banding_version``, for a 0.1.0 that runs on the same database."""
    compacted_version: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Tombstones up to this version may be deleted: see ``repositories.changes`` of the index."""
    size_policy: Mapped[str] = mapped_column(String(16), server_default="free")
    fixed_size: Mapped[int | None] = mapped_column(BigInteger)
    importance_kind: Mapped[str] = mapped_column(String(16), server_default="unstated")
    importance_base: Mapped[str | None] = mapped_column(String(400))
    importance_note: Mapped[str | None] = mapped_column(String(500))
    exclude: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    """Patterns of tensor names that are not part of its layout."""
    layout_digest: Mapped[str | None] = mapped_column(String(80))
    """The digest of its row in ``layouts``; NULL without one."""
    support_bytes: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Bytes of the blobs that models and revisions of the space name, for quotas."""
    subspaces: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """The specification that comparable data subspaces share; NULL in a space of supports."""
    blinding: Mapped[str | None] = mapped_column(String(48))
    """The check value of the key that its supports are blinded under; NULL where they are not."""
    ordered: Mapped[bool] = mapped_column(Boolean, server_default=false())
    """Whether its supports have the octaves of their ranks."""
    source_key: Mapped[str | None] = mapped_column(String(100))
    """By what a source finds it, that made it; NULL where its name is that."""


class LayoutRow(Base):
    """The layout of a space, apart from the space, whose row each change of a model rewrites.

    ``sizes`` are the sizes of the tensors, little-endian uint64: all that chance needs.
    """

    __tablename__ = "layouts"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    tensors: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    sizes: Mapped[bytes] = mapped_column(LargeBinary)


class ModelRow(Base):
    """One model of a space.

    A data subspace is of kind ``signature`` and has a digest, which a signature never has. It
    has no blob, and its columns are counted as ``support_size``.

    ``version`` is the version of the space at the model's last change. Read in that order, the
    table is its own change log; removals are in ``tombstones``.
    """

    __tablename__ = "models"
    __table_args__ = (
        UniqueConstraint("space_id", "name"),
        Index(None, "space_id", "version"),
        Index(None, "tenant_id", "created_at"),  # what is new
        # Orders of listings: see ``app.models.catalog.repositories.model_orders``.
        Index(None, "space_id", "support_size", "name"),
        Index(None, "space_id", "revision", "name"),
        # With the tenant, so that declared families are counted without the rows.
        Index(
            *("ix_models_declared", "space_id", "base_model", "tenant_id"),
            **where("base_model IS NOT NULL"),
        ),
        Index("ix_models_several_bases", "space_id", **where("base_models IS NOT NULL")),
        Index(None, "blob_key"),  # the sweep of orphans looks keys up
        Index(None, "space_id", "blob_key", **where(_UNMEASURED)),
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
    blob_size: Mapped[int | None] = mapped_column(BigInteger)
    """The bytes of the blob; NULL for an old blob without a size, until it is measured."""
    revision: Mapped[int] = mapped_column(BigInteger)
    version: Mapped[int] = mapped_column(BigInteger)
    attributes: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    source: Mapped[str | None] = mapped_column(String)
    base_model: Mapped[str | None] = mapped_column(Name)
    base_models: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    """The declared bases where they are several, so that ``base_model`` is NULL; else NULL."""
    base_relation: Mapped[str | None] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(Moment)
    updated_at: Mapped[datetime] = mapped_column(Moment)
    # Drawn at random with every change of the content, so that a cache marked with it never takes
    # one content for another, not even after the database was restored from a copy. 0 where there
    # is only a signature: no support, and no sketch.
    content_id: Mapped[int] = mapped_column(BigInteger, server_default="0")


class RevisionRow(Base):
    """A revision of a model that has changed; a model that never changed has no row here.

    ``blob_key`` is NULL where the support was never sent or is no longer kept. ``minhash`` is the
    signature; only a model's first row has it, since all later ones are compared with that. The
    self-overlaps J are with the revision before and with the first one.
    """

    __tablename__ = "revisions"
    __table_args__ = (
        Index(None, "blob_key"),  # what the sweep of orphans asks
        Index(None, "model_id", "blob_key", **where(_UNMEASURED)),
    )

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    revision: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(16))
    support_size: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str | None] = mapped_column(String(80))
    blob_key: Mapped[str | None] = mapped_column(String(120))
    blob_size: Mapped[int | None] = mapped_column(BigInteger)
    minhash: Mapped[bytes | None] = mapped_column(LargeBinary)
    previous_overlap: Mapped[float | None] = mapped_column(Float)
    previous_exact: Mapped[bool | None] = mapped_column(Boolean)
    first_overlap: Mapped[float] = mapped_column(Float)
    first_exact: Mapped[bool] = mapped_column(Boolean)
    created_at: Mapped[datetime] = mapped_column(Moment)


class SignatureRow(Base):
    """The MinHash values of a model, little-endian, all ``num_perm`` of them at full width.

    In a space of data subspaces the values are those of the model's subspace, in its native format.
    """

    __tablename__ = "signatures"

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    values: Mapped[bytes] = mapped_column(LargeBinary)


class TensorCountsRow(Base):
    """The numbers of a support's indices in each tensor of its space's layout.

    ``counts`` are little-endian uint32, or uint64 where M > 2^32. A support that is older than such
    counts has no row until a job makes it.
    """

    __tablename__ = "tensor_counts"

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    counts: Mapped[bytes] = mapped_column(LargeBinary)


class SketchRow(Base):
    """The sketch of a model that sent a signature and no support, in its native format."""

    __tablename__ = "sketches"

    model_id: Mapped[int] = mapped_column(
        ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    data: Mapped[bytes] = mapped_column(LargeBinary)


class SupportSizeReportRow(Base):
    """The last K* that a client of a space reported; one row a reporter."""

    __tablename__ = "support_size_reports"
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
    """A removed model: indexes that hold it read this and drop it."""

    __tablename__ = "tombstones"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    model_id: Mapped[int] = mapped_column(BigInteger)
