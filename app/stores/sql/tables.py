"""The tables. One convention names all constraints, so that migrations can name them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

__all__ = [
    "BandValuesRow",
    "Base",
    "BucketBuildRow",
    "BucketEntryRow",
    "BucketModelRow",
    "ClusteringPolicyRow",
    "ClusteringRow",
    "ClusteringSeriesRow",
    "JobRow",
    "KeyRow",
    "ModelRow",
    "RemovalRow",
    "RevisionRow",
    "SignatureRow",
    "SizeReportRow",
    "SketchRow",
    "SpaceRow",
    "StopListRow",
    "StoreRow",
    "TagRow",
    "TenantRow",
    "WorkerRow",
]

# Names sort by code point everywhere: SQLite does so by itself, Postgres when told to.
Name = String().with_variant(String(collation="C"), "postgresql")
# SQLite gives automatic ids to INTEGER keys only.
Id = BigInteger().with_variant(Integer(), "sqlite")


class Moment(TypeDecorator[datetime]):
    """A point in time, always UTC; SQLite keeps no zone, so it is put back on the way out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        return None if value is None else value.replace(tzinfo=value.tzinfo or UTC)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class StoreRow(Base):
    """The one row that tells this database from every other: whose blobs are whose goes by it."""

    __tablename__ = "store"

    token: Mapped[str] = mapped_column(String(32), primary_key=True)


class TenantRow(Base):
    __tablename__ = "tenants"
    __table_args__ = (UniqueConstraint("name"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(Name)


class KeyRow(Base):
    """An API key: its SHA-256, by which it is looked up. 256 random bits need no slower hash."""

    __tablename__ = "keys"
    __table_args__ = (UniqueConstraint("sha256"), UniqueConstraint("prefix"))

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    prefix: Mapped[str] = mapped_column(String(16))
    sha256: Mapped[bytes] = mapped_column(LargeBinary(32))
    label: Mapped[str] = mapped_column(String(200))
    scopes: Mapped[list[str]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(Moment)
    expires_at: Mapped[datetime | None] = mapped_column(Moment)
    revoked_at: Mapped[datetime | None] = mapped_column(Moment)


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
    """Removals up to this version may have been deleted: see ``app.stores.sql.changes``."""
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


class SizeReportRow(Base):
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


class RemovalRow(Base):
    """A model that was removed, so that an index which has seen it can forget it."""

    __tablename__ = "removals"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    model_id: Mapped[int] = mapped_column(BigInteger)


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


class BandValuesRow(Base):
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


class JobRow(Base):
    """A job: what the API shows of it, and what the workers still have to take from here.

    A row is written in the transaction of the data that it follows. ``turn`` numbers the times it
    was offered to the workers, ``handed`` says that the present offer was taken over; ``worker``
    and ``attempts`` name who carries it out, so that nobody else can end it. ``dedup_key`` is held
    until it ends. No foreign key to the space: deleting one never waits for its jobs.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("tenant_id", "kind", "dedup_key"),
        Index(None, "tenant_id", "id"),
        Index(None, "state", "id"),
        Index(None, "finished_at"),
        CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state"
        ),
        CheckConstraint(
            "(finished_at IS NULL) = (state IN ('queued', 'running'))", name="finished"
        ),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    space_id: Mapped[int | None] = mapped_column(BigInteger)
    space: Mapped[str | None] = mapped_column(Name)
    kind: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)
    progress: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    dedup_key: Mapped[str | None] = mapped_column(String(200))
    turn: Mapped[int] = mapped_column(Integer)
    handed: Mapped[bool] = mapped_column(Boolean)
    worker: Mapped[str | None] = mapped_column(String(64))
    attempts: Mapped[int] = mapped_column(Integer)
    cancelling: Mapped[bool] = mapped_column(Boolean)
    revision: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(Moment)
    not_before: Mapped[datetime | None] = mapped_column(Moment)
    started_at: Mapped[datetime | None] = mapped_column(Moment)
    finished_at: Mapped[datetime | None] = mapped_column(Moment)


class WorkerRow(Base):
    """A worker that lives, as long as ``beat`` grows. Others take over what a silent one held."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    started_at: Mapped[datetime] = mapped_column(Moment)
    beat: Mapped[int] = mapped_column(BigInteger)


class ClusteringRow(Base):
    """A finished clustering. ``number`` counts those of its space; ``scope`` is "" where it is of
    all models. ``content`` holds the models and their clusters, compressed.
    """

    __tablename__ = "clusterings"
    __table_args__ = (
        UniqueConstraint("space_id", "number"),
        Index(None, "space_id", "scope", "number"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    space_id: Mapped[int] = mapped_column(ForeignKey("spaces.id", ondelete="CASCADE"))
    number: Mapped[int] = mapped_column(BigInteger)
    scope: Mapped[str] = mapped_column(String(32))
    algorithm: Mapped[str] = mapped_column(String(32))
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)
    chosen: Mapped[dict[str, Any]] = mapped_column(JSON)
    version: Mapped[int] = mapped_column(BigInteger)
    similarity: Mapped[str] = mapped_column(String(16))
    models: Mapped[int] = mapped_column(BigInteger)
    clusters: Mapped[int] = mapped_column(BigInteger)
    noise: Mapped[int] = mapped_column(BigInteger)
    quality: Mapped[dict[str, Any]] = mapped_column(JSON)
    previous: Mapped[str | None] = mapped_column(String(36))
    agreement: Mapped[float | None] = mapped_column(Float)
    seconds: Mapped[float] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(Moment)
    content: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)


class ClusteringSeriesRow(Base):
    """What the clusterings of a space have used up: numbers, and ids of clusters."""

    __tablename__ = "clustering_series"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(BigInteger)
    next_cluster: Mapped[int] = mapped_column(BigInteger)


class ClusteringPolicyRow(Base):
    """When a space is clustered anew, and how. ``done`` is what the last clustering under it saw,
    ``tried`` what the last one was asked for at, whatever came of it, after so many ``failures``;
    ``seen`` the newest version that was noticed and when, ``due_since`` how long one is due.
    """

    __tablename__ = "clustering_policies"

    space_id: Mapped[int] = mapped_column(
        ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True
    )
    asked: Mapped[dict[str, Any]] = mapped_column(JSON)
    after_changes: Mapped[int | None] = mapped_column(BigInteger)
    every_seconds: Mapped[int | None] = mapped_column(BigInteger)
    debounce_seconds: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(Moment)
    updated_at: Mapped[datetime] = mapped_column(Moment)
    done_version: Mapped[int] = mapped_column(BigInteger)
    done_at: Mapped[datetime | None] = mapped_column(Moment)
    seen_version: Mapped[int] = mapped_column(BigInteger)
    seen_at: Mapped[datetime] = mapped_column(Moment)
    due_since: Mapped[datetime | None] = mapped_column(Moment)
    tried_job: Mapped[str | None] = mapped_column(String(36))
    tried_version: Mapped[int] = mapped_column(BigInteger, server_default="0")
    failures: Mapped[int] = mapped_column(Integer, server_default="0")
