"""Clusterings, and the policy that renews them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def of_a_space(table: str) -> sa.ForeignKeyConstraint:
    """Rows of a space are deleted with it."""
    name = f"fk_{table}_space_id"
    return sa.ForeignKeyConstraint(["space_id"], ["spaces.id"], name=name, ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "clusterings",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("space_id", ID, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("scope", sa.String(32), nullable=False),
        sa.Column("algorithm", sa.String(32), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("chosen", sa.JSON(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("similarity", sa.String(16), nullable=False),
        sa.Column("models", sa.BigInteger(), nullable=False),
        sa.Column("clusters", sa.BigInteger(), nullable=False),
        sa.Column("noise", sa.BigInteger(), nullable=False),
        sa.Column("quality", sa.JSON(), nullable=False),
        sa.Column("previous", sa.String(36), nullable=True),
        sa.Column("agreement", sa.Float(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_clusterings"),
        of_a_space("clusterings"),
        sa.UniqueConstraint("space_id", "number", name="uq_clusterings_space_id_number"),
    )
    op.create_index(
        "ix_clusterings_space_id_scope_number", "clusterings", ["space_id", "scope", "number"]
    )
    op.create_table(
        "clustering_series",
        sa.Column("space_id", ID, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("next_cluster", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("space_id", name="pk_clustering_series"),
        of_a_space("clustering_series"),
    )
    op.create_table(
        "clustering_policies",
        sa.Column("space_id", ID, nullable=False),
        sa.Column("asked", sa.JSON(), nullable=False),
        sa.Column("after_changes", sa.BigInteger(), nullable=True),
        sa.Column("every_seconds", sa.BigInteger(), nullable=True),
        sa.Column("debounce_seconds", sa.BigInteger(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("done_version", sa.BigInteger(), nullable=False),
        sa.Column("done_at", MOMENT, nullable=True),
        sa.Column("seen_version", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
        sa.Column("due_since", MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("space_id", name="pk_clustering_policies"),
        of_a_space("clustering_policies"),
    )


def downgrade() -> None:
    for table in ("clustering_policies", "clustering_series", "clusterings"):
        op.drop_table(table)
