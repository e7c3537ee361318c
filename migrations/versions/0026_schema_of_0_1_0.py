"""The schema of version 0.1.0, whose databases upgrade from here.

``tests/app/infra/recorded`` has the schema that the migrations of 0.1.0 made, with all defaults.
"""

from __future__ import annotations

import secrets
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = None
branch_labels = None
depends_on = None

METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
BIG, INT, REAL, BOOL = sa.BigInteger(), sa.Integer(), sa.Float(), sa.Boolean()
BYTES, JSON, MOMENT = sa.LargeBinary(), sa.JSON(), sa.DateTime(timezone=True)
ID = BIG.with_variant(INT, "sqlite")
"""SQLite gives ids to INTEGER keys alone."""
NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
"""Sorted by code points on both."""


def where(condition: str) -> dict[str, Any]:
    """The options of a partial index."""
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


sa.Table(
    "installation",
    METADATA,
    sa.Column("token", sa.String(32), primary_key=True),
    sa.Column("lineage", sa.String(32)),
    sa.Column("swept_at", MOMENT),
)
sa.Table(
    "tenants",
    METADATA,
    sa.Column("id", ID, primary_key=True),
    sa.Column("name", NAME, nullable=False),
    sa.Column("quotas", JSON),
    sa.UniqueConstraint("name"),
)
sa.Table(
    "api_keys",
    METADATA,
    sa.Column("id", ID, primary_key=True),
    sa.Column("tenant_id", ID, sa.ForeignKey("tenants.id"), nullable=False),
    sa.Column("prefix", sa.String(16), nullable=False),
    sa.Column("sha256", BYTES, nullable=False),
    sa.Column("label", sa.String(200), nullable=False),
    sa.Column("scopes", JSON, nullable=False),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("expires_at", MOMENT),
    sa.Column("revoked_at", MOMENT),
    sa.Column("last_used_at", MOMENT),
    sa.UniqueConstraint("prefix"),
    sa.UniqueConstraint("sha256"),
)
sa.Table(
    "spaces",
    METADATA,
    sa.Column("id", ID, primary_key=True),
    sa.Column("tenant_id", ID, sa.ForeignKey("tenants.id"), nullable=False),
    sa.Column("name", NAME, nullable=False),
    sa.Column("num_parameters", BIG, nullable=False),
    sa.Column("scheme", sa.String(16), nullable=False),
    sa.Column("num_perm", INT, nullable=False),
    sa.Column("seed", BIG, nullable=False),
    sa.Column("version", BIG, nullable=False),
    sa.Column("supports", BIG, nullable=False),
    sa.Column("signatures", BIG, nullable=False),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("bucket_epoch", BIG),
    sa.Column("bands", INT, nullable=False, server_default="64"),
    sa.Column("band_rows", INT, nullable=False, server_default="4"),
    sa.Column("banding_version", BIG, nullable=False, server_default="0"),
    sa.Column("stop_list_seq", BIG, nullable=False, server_default="0"),
    sa.Column("size_policy", sa.String(16), nullable=False, server_default="free"),
    sa.Column("fixed_size", BIG),
    sa.Column("compacted_version", BIG, nullable=False, server_default="0"),
    sa.Column("importance_kind", sa.String(16), nullable=False, server_default="unstated"),
    sa.Column("importance_base", sa.String(400)),
    sa.Column("importance_note", sa.String(500)),
    sa.Column("exclude", JSON),
    sa.Column("support_bytes", BIG, nullable=False, server_default="0"),
    sa.Column("layout_digest", sa.String(80)),
    sa.Column("subspaces", JSON),
    sa.UniqueConstraint("tenant_id", "name"),
    sa.Index(None, "tenant_id", "supports", "signatures", "support_bytes").ddl_if("sqlite"),
    sqlite_autoincrement=True,
)
sa.Table(
    "layouts",
    METADATA,
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("tensors", JSON, nullable=False),
    sa.Column("sizes", BYTES, nullable=False),
)
sa.Table(
    "models",
    METADATA,
    sa.Column("id", ID, primary_key=True),
    sa.Column("tenant_id", ID, sa.ForeignKey("tenants.id"), nullable=False),
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", NAME, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("support_size", BIG, nullable=False),
    sa.Column("digest", sa.String(80)),
    sa.Column("blob_key", sa.String(120)),
    sa.Column("revision", BIG, nullable=False),
    sa.Column("version", BIG, nullable=False),
    sa.Column("attributes", JSON, nullable=False),
    sa.Column("source", sa.String()),
    sa.Column("base_model", NAME),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("updated_at", MOMENT, nullable=False),
    sa.Column("content_id", BIG, nullable=False, server_default="0"),
    sa.Column("blob_size", BIG),
    sa.UniqueConstraint("space_id", "name"),
    sa.CheckConstraint("(kind = 'support') = (blob_key IS NOT NULL)", name="blob"),
    sa.CheckConstraint("kind IN ('support', 'signature')", name="kind"),
    sa.Index(None, "blob_key"),
    sa.Index(None, "space_id", "base_model", **where("base_model IS NOT NULL")),
    sa.Index(None, "space_id", "blob_key", **where("blob_size IS NULL AND blob_key IS NOT NULL")),
    sa.Index(None, "space_id", "version"),
    sqlite_autoincrement=True,
)
sa.Table(
    "signatures",
    METADATA,
    sa.Column("model_id", ID, sa.ForeignKey("models.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("values", BYTES, nullable=False),
)
sa.Table(
    "tags",
    METADATA,
    sa.Column("model_id", ID, sa.ForeignKey("models.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("tag", NAME, primary_key=True),
    sa.Index(None, "tag", "model_id"),
)
sa.Table(
    "revisions",
    METADATA,
    sa.Column("model_id", ID, sa.ForeignKey("models.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("revision", BIG, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("support_size", BIG, nullable=False),
    sa.Column("digest", sa.String(80)),
    sa.Column("blob_key", sa.String(120)),
    sa.Column("minhash", BYTES),
    sa.Column("previous_overlap", REAL),
    sa.Column("previous_exact", BOOL),
    sa.Column("first_overlap", REAL, nullable=False),
    sa.Column("first_exact", BOOL, nullable=False),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("blob_size", BIG),
    sa.Index(None, "blob_key"),
    sa.Index(None, "model_id", "blob_key", **where("blob_size IS NULL AND blob_key IS NOT NULL")),
)
sa.Table(
    "sketches",
    METADATA,
    sa.Column("model_id", ID, sa.ForeignKey("models.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("data", BYTES, nullable=False),
)
sa.Table(
    "tensor_counts",
    METADATA,
    sa.Column("model_id", ID, sa.ForeignKey("models.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("counts", BYTES, nullable=False),
)
sa.Table(
    "tombstones",
    METADATA,
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("version", BIG, primary_key=True, autoincrement=False),
    sa.Column("model_id", BIG, nullable=False),
)
sa.Table(
    "support_size_reports",
    METADATA,
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("reporter", NAME, primary_key=True),
    sa.Column("k_star", BIG, nullable=False),
    sa.Column("reported_at", MOMENT, nullable=False),
    sa.Index(None, "space_id", "k_star"),
)
sa.Table(
    "stop_lists",
    METADATA,
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("version", BIG, primary_key=True, autoincrement=False),
    sa.Column("indices", BYTES, nullable=False),
    sa.Column("size", BIG, nullable=False),
    sa.Column("share", REAL, nullable=False),
    sa.Column("models", BIG, nullable=False),
    sa.Column("recall", JSON, nullable=False),
    sa.Column("computed_at", MOMENT, nullable=False),
)
sa.Table(
    "banded_signatures",
    METADATA,
    sa.Column("model_id", ID, sa.ForeignKey("models.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("version", BIG, primary_key=True, autoincrement=False),
    sa.Column("space_id", BIG, nullable=False),
    sa.Column("minhash", BYTES),
    sa.Index(
        "ix_banded_signatures_unbanded",
        "space_id",
        "version",
        "model_id",
        **where("minhash IS NULL"),
    ),
)
sa.Table(
    "bucket_builds",
    METADATA,
    sa.Column("id", ID, primary_key=True),
    sa.Column("space_id", BIG),
    sa.Column("epoch", BIG, nullable=False),
    sa.Column("version", BIG, nullable=False),
    sa.Column("banding_version", BIG, nullable=False),
    sa.UniqueConstraint("space_id"),
    sqlite_autoincrement=True,
)
sa.Table(
    "bucket_models",
    METADATA,
    sa.Column("build_id", BIG, primary_key=True, autoincrement=False),
    sa.Column("model_id", BIG, primary_key=True, autoincrement=False),
    sa.Column("keys", BYTES, nullable=False),
    sqlite_with_rowid=False,
)
sa.Table(
    "bucket_entries",
    METADATA,
    sa.Column("build_id", INT, primary_key=True, autoincrement=False),
    sa.Column("key", BIG, primary_key=True, autoincrement=False),
    sa.Column("model_id", BIG, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
sa.Table(
    "clustering_policies",
    METADATA,
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("request", JSON, nullable=False),
    sa.Column("after_changes", BIG),
    sa.Column("every_seconds", BIG),
    sa.Column("debounce_seconds", BIG, nullable=False),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("updated_at", MOMENT, nullable=False),
    sa.Column("done_version", BIG, nullable=False),
    sa.Column("done_at", MOMENT),
    sa.Column("seen_version", BIG, nullable=False),
    sa.Column("seen_at", MOMENT, nullable=False),
    sa.Column("due_since", MOMENT),
    sa.Column("tried_job", sa.String(36)),
    sa.Column("tried_version", BIG, nullable=False, server_default="0"),
    sa.Column("failures", INT, nullable=False, server_default="0"),
)
sa.Table(
    "clustering_series",
    METADATA,
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", BIG, nullable=False),
    sa.Column("next_cluster", BIG, nullable=False),
)
sa.Table(
    "clusterings",
    METADATA,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), nullable=False),
    sa.Column("number", BIG, nullable=False),
    sa.Column("scope", sa.String(32), nullable=False),
    sa.Column("algorithm", sa.String(32), nullable=False),
    sa.Column("parameters", JSON, nullable=False),
    sa.Column("chosen", JSON, nullable=False),
    sa.Column("version", BIG, nullable=False),
    sa.Column("similarity", sa.String(16), nullable=False),
    sa.Column("models", BIG, nullable=False),
    sa.Column("clusters", BIG, nullable=False),
    sa.Column("noise", BIG, nullable=False),
    sa.Column("quality", JSON, nullable=False),
    sa.Column("previous", sa.String(36)),
    sa.Column("agreement", REAL),
    sa.Column("seconds", REAL, nullable=False),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("content", BYTES, nullable=False),
    sa.UniqueConstraint("space_id", "number"),
    sa.Index(None, "space_id", "scope", "number"),
)
sa.Table(
    "events",
    METADATA,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("tenant_id", ID, sa.ForeignKey("tenants.id"), nullable=False),
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("space_id", BIG, nullable=False),
    sa.Column("space", NAME, nullable=False),
    sa.Column("model", NAME),
    sa.Column("model_id", BIG),
    sa.Column("revision", BIG),
    sa.Column("tags", JSON, nullable=False),
    sa.Column("data", JSON, nullable=False),
    sa.Column("fanned_out", BOOL, nullable=False),
    sa.Column("neighbors_compared", BOOL, nullable=False),
    sa.Column("failures", INT, nullable=False),
    sa.Column("due_at", MOMENT),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Index(None, "created_at"),
    sa.Index(None, "fanned_out", "tenant_id", "id"),
    sa.Index(None, "model_id", "fanned_out", "id"),
    sa.Index(None, "space_id", "fanned_out", "id"),
)
sa.Table(
    "sources",
    METADATA,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("tenant_id", ID, sa.ForeignKey("tenants.id"), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("space", NAME, nullable=False),
    sa.Column("url", sa.String(2000)),
    sa.Column("secret", BYTES, nullable=False),
    sa.Column("token", BYTES),
    sa.Column("importance", sa.String(16)),
    sa.Column("base_model", NAME),
    sa.Column("filters", JSON, nullable=False),
    sa.Column("on_delete", sa.String(16), nullable=False),
    sa.Column("poll_seconds", BIG),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("updated_at", MOMENT, nullable=False),
    sa.Column("last_event_at", MOMENT),
    sa.Column("last_refusal", JSON),
    sa.Column("last_error", JSON),
    sa.Column("last_poll", JSON),
    sa.Column("last_poll_at", MOMENT),
    sa.Column("next_poll_at", MOMENT),
    sa.Column("exclude", JSON),
    sa.CheckConstraint("kind IN ('huggingface', 'mlflow')", name="kind"),
    sa.CheckConstraint("on_delete IN ('keep', 'remove')", name="on_delete"),
    sa.Index(None, "next_poll_at"),
    sa.Index(None, "tenant_id", "id"),
)
sa.Table(
    "hub_events",
    METADATA,
    sa.Column("id", ID, primary_key=True),
    sa.Column(
        "source_id", sa.String(36), sa.ForeignKey("sources.id", ondelete="CASCADE"), nullable=False
    ),
    sa.Column("event_id", sa.String(200), nullable=False),
    sa.Column("event", sa.String(200), nullable=False),
    sa.Column("model", NAME),
    sa.Column("revision", sa.String(200)),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(500)),
    sa.Column("job_id", sa.String(36)),
    sa.Column("received_at", MOMENT, nullable=False),
    sa.UniqueConstraint("source_id", "event_id"),
    sa.CheckConstraint("outcome IN ('enqueued', 'ignored', 'recorded')", name="outcome"),
    sa.Index(None, "received_at"),
    sa.Index(None, "source_id", "id"),
)
sa.Table(
    "jobs",
    METADATA,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("tenant_id", ID, sa.ForeignKey("tenants.id"), nullable=False),
    sa.Column("space_id", BIG),
    sa.Column("space", NAME),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("parameters", JSON, nullable=False),
    sa.Column("progress", JSON),
    sa.Column("result", JSON),
    sa.Column("error", JSON),
    sa.Column("dedup_key", sa.String(200)),
    sa.Column("dispatch_no", INT, nullable=False),
    sa.Column("dispatched", BOOL, nullable=False),
    sa.Column("worker", sa.String(64)),
    sa.Column("attempts", INT, nullable=False),
    sa.Column("cancel_requested", BOOL, nullable=False),
    sa.Column("revision", BIG, nullable=False),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("not_before", MOMENT),
    sa.Column("started_at", MOMENT),
    sa.Column("finished_at", MOMENT),
    sa.UniqueConstraint("tenant_id", "kind", "dedup_key"),
    sa.CheckConstraint("(finished_at IS NULL) = (state IN ('queued', 'running'))", name="finished"),
    sa.CheckConstraint(
        "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state"
    ),
    sa.Index(None, "finished_at"),
    sa.Index(None, "state", "id"),
    sa.Index(None, "tenant_id", "id"),
    sa.Index(None, "tenant_id", "kind", **where("finished_at IS NULL")),
)
sa.Table(
    "learngene_series",
    METADATA,
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("cluster", BIG, primary_key=True, autoincrement=False),
    sa.Column("version", BIG, nullable=False),
)
sa.Table(
    "learngenes",
    METADATA,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("tenant_id", ID, sa.ForeignKey("tenants.id"), nullable=False),
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), nullable=False),
    sa.Column("cluster", BIG, nullable=False),
    sa.Column("version", BIG, nullable=False),
    sa.Column("clustering", sa.String(36)),
    sa.Column("scope", sa.String(32), nullable=False),
    sa.Column("digest", sa.String(71), nullable=False),
    sa.Column("size", BIG, nullable=False),
    sa.Column("num_tensors", INT, nullable=False),
    sa.Column("reference", JSON),
    sa.Column("blob_key", sa.String(120)),
    sa.Column("stored_bytes", BIG, nullable=False),
    sa.Column("members", BIG),
    sa.Column("rounds", BIG),
    sa.Column("metrics", JSON, nullable=False),
    sa.Column("note", sa.String(2000)),
    sa.Column("published_by", sa.String(16)),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("tensors", JSON, nullable=False),
    sa.UniqueConstraint("space_id", "cluster", "version"),
    sa.Index(None, "blob_key"),
    sa.Index(None, "space_id", "id"),
    sa.Index(None, "tenant_id"),
)
sa.Table(
    "maps",
    METADATA,
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("id", sa.String(36), nullable=False),
    sa.Column("parameters", JSON, nullable=False),
    sa.Column("version", BIG, nullable=False),
    sa.Column("similarity", sa.String(16), nullable=False),
    sa.Column("models", BIG, nullable=False),
    sa.Column("edges", BIG, nullable=False),
    sa.Column("parts", BIG, nullable=False),
    sa.Column("seconds", REAL, nullable=False),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("content", BYTES, nullable=False),
)
sa.Table(
    "merges",
    METADATA,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("tenant_id", ID, sa.ForeignKey("tenants.id"), nullable=False),
    sa.Column("space_id", ID, sa.ForeignKey("spaces.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", NAME, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempt", INT, nullable=False),
    sa.Column("revision", BIG, nullable=False),
    sa.Column("request", JSON, nullable=False),
    sa.Column("plan", JSON, nullable=False),
    sa.Column("weights", JSON),
    sa.Column("roster", JSON),
    sa.Column("digest", sa.String(64)),
    sa.Column("peak", REAL),
    sa.Column("failure", sa.String(2000)),
    sa.Column("size", BIG, nullable=False),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("due_at", MOMENT),
    sa.Column("ended_at", MOMENT),
    sa.UniqueConstraint("space_id", "name"),
    sa.CheckConstraint("(ended_at IS NULL) = (state NOT IN ('done', 'failed'))", name="ended"),
    sa.CheckConstraint(
        "state IN ('joining', 'sending', 'combining', 'done', 'failed')", name="state"
    ),
    sa.Index(None, "ended_at"),
    sa.Index(None, "tenant_id", "ended_at"),
)
sa.Table(
    "merge_cells",
    METADATA,
    sa.Column(
        "merge_id", sa.String(36), sa.ForeignKey("merges.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("attempt", INT, primary_key=True, autoincrement=False),
    sa.Column("is_result", BOOL, primary_key=True),
    sa.Column("shard", INT, primary_key=True, autoincrement=False),
    sa.Column("piece", INT, primary_key=True, autoincrement=False),
    sa.Column("place", INT, primary_key=True, autoincrement=False),
    sa.Column("digest", BYTES, nullable=False),
    sa.Column("blob_key", sa.String(120), nullable=False),
    sa.Column("size", BIG, nullable=False),
    sa.Index(None, "blob_key"),
)
sa.Table(
    "merge_parties",
    METADATA,
    sa.Column(
        "merge_id", sa.String(36), sa.ForeignKey("merges.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("name", NAME, primary_key=True),
    sa.Column("neutral", BOOL, nullable=False),
    sa.Column("public_key", BYTES),
    sa.Column("token_digest", BYTES),
    sa.Column("examples", BIG),
    sa.Column("peak", REAL),
    sa.Column("may_aggregate", BOOL, nullable=False),
    sa.Column("verdict", INT),
    sa.Column("left_out", sa.String(2000)),
    sa.CheckConstraint("(public_key IS NULL) = (token_digest IS NULL)", name="joined"),
)
sa.Table(
    "orphan_blobs",
    METADATA,
    sa.Column("key", sa.String(120), primary_key=True),
    sa.Column("found_at", MOMENT, nullable=False),
)
sa.Table(
    "released_blobs",
    METADATA,
    sa.Column("key", sa.String(120), primary_key=True),
    sa.Column("released_at", MOMENT, nullable=False),
    sa.Column("tenant_id", BIG, nullable=False),
    sa.Column("size", BIG, nullable=False),
    sa.Index(None, "released_at"),
    sa.Index(None, "tenant_id", "released_at"),
)
sa.Table(
    "source_models",
    METADATA,
    sa.Column(
        "source_id",
        sa.String(36),
        sa.ForeignKey("sources.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("name", NAME, primary_key=True),
    sa.Column("sync_started_seq", BIG, nullable=False),
    sa.Column("sync_applied_seq", BIG, nullable=False),
    sa.Column("listed", BOOL, nullable=False),
    sa.Column("revision", sa.String(200)),
    sa.Column("space", NAME),
    sa.Column("model", NAME),
    sa.Column("error", JSON),
    sa.Column("synced_at", MOMENT),
    sa.Column("sync_job_id", sa.String(36)),
    sa.Column("delta_space", NAME),
)
sa.Table(
    "subscriptions",
    METADATA,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("tenant_id", ID, sa.ForeignKey("tenants.id"), nullable=False),
    sa.Column("url", sa.String(2000), nullable=False),
    sa.Column("events", JSON, nullable=False),
    sa.Column("space", NAME),
    sa.Column("model", NAME),
    sa.Column("tag", NAME),
    sa.Column("threshold", REAL),
    sa.Column("description", sa.String(2000)),
    sa.Column("secret", BYTES, nullable=False),
    sa.Column("previous_secrets", BYTES),
    sa.Column("previous_until", MOMENT),
    sa.Column("enabled", BOOL, nullable=False),
    sa.Column("disabled_reason", sa.String(2000)),
    sa.Column("failures", INT, nullable=False),
    sa.Column("failing_since", MOMENT),
    sa.Column("paused_until", MOMENT),
    sa.Column("last_success_at", MOMENT),
    sa.Column("last_failure", JSON),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("updated_at", MOMENT, nullable=False),
    sa.Index(None, "tenant_id", "id"),
)
sa.Table(
    "webhook_deliveries",
    METADATA,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("tenant_id", BIG, nullable=False),
    sa.Column(
        "subscription_id",
        sa.String(36),
        sa.ForeignKey("subscriptions.id", ondelete="CASCADE"),
        nullable=False,
    ),
    sa.Column("event_id", sa.String(36), nullable=False),
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("body", BYTES, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", INT, nullable=False),
    sa.Column("log", JSON, nullable=False),
    sa.Column("due_at", MOMENT),
    sa.Column("created_at", MOMENT, nullable=False),
    sa.Column("finished_at", MOMENT),
    sa.UniqueConstraint("subscription_id", "event_id", "type"),
    sa.CheckConstraint("(state = 'pending') = (due_at IS NOT NULL)", name="due"),
    sa.CheckConstraint("state IN ('pending', 'succeeded', 'failed')", name="state"),
    sa.Index(None, "finished_at"),
    sa.Index(None, "subscription_id", "due_at", "id", **where("due_at IS NOT NULL")),
    sa.Index(None, "subscription_id", "id"),
    sa.Index(None, "tenant_id", "finished_at"),
)
sa.Table(
    "workers",
    METADATA,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("started_at", MOMENT, nullable=False),
    sa.Column("heartbeat_seq", BIG, nullable=False),
)


def upgrade() -> None:
    METADATA.create_all(op.get_bind(), checkfirst=False)
    installation = METADATA.tables["installation"]
    op.bulk_insert(installation, [{"token": secrets.token_hex(16)}])


def downgrade() -> None:
    METADATA.drop_all(op.get_bind(), checkfirst=False)
