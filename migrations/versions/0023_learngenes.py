"""Learngenes: manifests of what newcomers start from, by cluster and version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "learngenes",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("space_id", ID, nullable=False),
        sa.Column("cluster", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("clustering", sa.String(36), nullable=True),
        sa.Column("scope", sa.String(32), nullable=False),
        sa.Column("digest", sa.String(71), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("num_tensors", sa.Integer(), nullable=False),
        sa.Column("reference", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("blob_key", sa.String(120), nullable=True),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=False),
        sa.Column("members", sa.BigInteger(), nullable=True),
        sa.Column("rounds", sa.BigInteger(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("note", sa.String(2000), nullable=True),
        sa.Column("published_by", sa.String(16), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tensors", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_learngenes_tenant_id"),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_learngenes_space_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_learngenes"),
        sa.UniqueConstraint(
            "space_id", "cluster", "version", name="uq_learngenes_space_id_cluster_version"
        ),
    )
    op.create_index("ix_learngenes_space_id_id", "learngenes", ["space_id", "id"])
    op.create_index("ix_learngenes_tenant_id", "learngenes", ["tenant_id"])
    op.create_index("ix_learngenes_blob_key", "learngenes", ["blob_key"])
    op.create_table(
        "learngene_series",
        sa.Column("space_id", ID, nullable=False),
        sa.Column("cluster", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_learngene_series_space_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("space_id", "cluster", name="pk_learngene_series"),
    )


def downgrade() -> None:
    op.drop_table("learngene_series")
    op.drop_table("learngenes")
