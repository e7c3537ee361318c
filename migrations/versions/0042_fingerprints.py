"""Fingerprints of checkpoints, their payloads, and the change feed that indices follow.

The version before does not know them, and leaves them as they are.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
MOMENT = sa.DateTime(timezone=True)
TENANT = "(SELECT nullif(current_setting('modelkin.tenant', true), '')::bigint)"
TABLES = (
    "fingerprints",
    "fingerprint_payloads",
    "fingerprint_feeds",
    "fingerprint_tombstones",
)


def upgrade() -> None:
    _create_fingerprints()
    op.create_table(
        "fingerprint_payloads",
        sa.Column("fingerprint_id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("finding_scale", sa.SmallInteger(), nullable=False),
        sa.Column("finding_keys", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint_id"],
            ["fingerprints.id"],
            name="fk_fingerprint_payloads_fingerprint_id",
            ondelete="CASCADE",
        ),
        _owner("fingerprint_payloads"),
        sa.PrimaryKeyConstraint("fingerprint_id", name="pk_fingerprint_payloads"),
    )
    op.create_index("ix_fingerprint_payloads_tenant_id", "fingerprint_payloads", ["tenant_id"])
    op.create_table(
        "fingerprint_feeds",
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("compacted_version", sa.BigInteger(), nullable=False),
        sa.Column("fingerprints", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        _owner("fingerprint_feeds"),
        sa.PrimaryKeyConstraint("tenant_id", name="pk_fingerprint_feeds"),
    )
    op.create_table(
        "fingerprint_tombstones",
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("fingerprint_id", sa.BigInteger(), nullable=False),
        _owner("fingerprint_tombstones"),
        sa.PrimaryKeyConstraint("tenant_id", "version", name="pk_fingerprint_tombstones"),
    )
    if op.get_bind().dialect.name == "postgresql":
        for table in TABLES:
            _protect(table)
        # Compressed already, or random: Postgres would try in vain.
        for column in ("data", "finding_keys"):
            op.execute(f"ALTER TABLE fingerprint_payloads ALTER {column} SET STORAGE EXTERNAL")


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_fingerprints() -> None:
    op.create_table(
        "fingerprints",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("scheme", sa.String(16), nullable=False),
        sa.Column("scale", sa.SmallInteger(), nullable=False),
        sa.Column("digest", sa.String(71), nullable=False),
        sa.Column("stated_by", sa.String(8), nullable=False),
        sa.Column("tensors", sa.Integer(), nullable=False),
        sa.Column("keys", sa.Integer(), nullable=False),
        sa.Column("lines", sa.JSON(), nullable=False),
        sa.Column("parameters", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("base_models", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("base_relation", sa.String(16), nullable=True),
        sa.Column("license", sa.String(200), nullable=True),
        sa.Column("published_at", MOMENT, nullable=True),
        sa.Column("file_bytes", sa.BigInteger(), nullable=True),
        sa.Column("source_id", sa.String(36), nullable=True),
        sa.Column("hub_revision", sa.String(200), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("changed_at", MOMENT, nullable=False),
        sa.CheckConstraint("stated_by IN ('hub', 'client')", name="stated_by"),
        _owner("fingerprints"),
        sa.PrimaryKeyConstraint("id", name="pk_fingerprints"),
        sa.UniqueConstraint("tenant_id", "name", name="uq_fingerprints_tenant_id_name"),
        sa.UniqueConstraint("tenant_id", "version", name="uq_fingerprints_tenant_id_version"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_fingerprints_tenant_id_digest", "fingerprints", ["tenant_id", "digest"])
    op.create_index("ix_fingerprints_source_id", "fingerprints", ["source_id"])


def _owner(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=f"fk_{table}_tenant_id")


def _protect(table: str) -> None:
    """Hide the rows of other tenants, as migration 0034 does."""
    own = f"CASE WHEN {TENANT} IS NULL THEN true ELSE tenant_id = {TENANT} END"
    op.execute(f"CREATE POLICY tenant ON {table} USING ({own})")
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
