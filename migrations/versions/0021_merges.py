"""Merges: parties average models through the service, which opens nothing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    op.create_table(
        "merges",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("space_id", ID, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("weights", JSON, nullable=True),
        sa.Column("roster", JSON, nullable=True),
        sa.Column("digest", sa.String(64), nullable=True),
        sa.Column("peak", sa.Float(), nullable=True),
        sa.Column("failure", sa.String(2000), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('joining', 'sending', 'combining', 'done', 'failed')",
            name=op.f("ck_merges_state"),
        ),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (state NOT IN ('done', 'failed'))", name=op.f("ck_merges_ended")
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_merges_tenant_id"),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_merges_space_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_merges"),
        sa.UniqueConstraint("space_id", "name", name="uq_merges_space_id_name"),
    )
    op.create_index("ix_merges_tenant_id_ended_at", "merges", ["tenant_id", "ended_at"])
    op.create_index("ix_merges_ended_at", "merges", ["ended_at"])
    op.create_table(
        "merge_parties",
        sa.Column("merge_id", sa.String(36), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("neutral", sa.Boolean(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=True),
        sa.Column("token_digest", sa.LargeBinary(), nullable=True),
        sa.Column("examples", sa.BigInteger(), nullable=True),
        sa.Column("peak", sa.Float(), nullable=True),
        sa.Column("may_aggregate", sa.Boolean(), nullable=False),
        sa.Column("verdict", sa.Integer(), nullable=True),
        sa.Column("left_out", sa.String(2000), nullable=True),
        sa.CheckConstraint(
            "(public_key IS NULL) = (token_digest IS NULL)", name=op.f("ck_merge_parties_joined")
        ),
        sa.ForeignKeyConstraint(
            ["merge_id"], ["merges.id"], name="fk_merge_parties_merge_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("merge_id", "name", name="pk_merge_parties"),
    )
    op.create_table(
        "merge_cells",
        sa.Column("merge_id", sa.String(36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("is_result", sa.Boolean(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("piece", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("blob_key", sa.String(120), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["merge_id"], ["merges.id"], name="fk_merge_cells_merge_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(
            "merge_id", "attempt", "is_result", "shard", "piece", "place", name="pk_merge_cells"
        ),
    )
    op.create_index("ix_merge_cells_blob_key", "merge_cells", ["blob_key"])


def downgrade() -> None:
    op.drop_table("merge_cells")
    op.drop_table("merge_parties")
    op.drop_table("merges")
