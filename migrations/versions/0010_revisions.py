"""Revisions of models: the contents they have had, of those that are there their present ones."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "revisions",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("support_size", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(80), nullable=True),
        sa.Column("blob_key", sa.String(120), nullable=True),
        sa.Column("minhash", sa.LargeBinary(), nullable=True),
        sa.Column("previous_overlap", sa.Float(), nullable=True),
        sa.Column("previous_exact", sa.Boolean(), nullable=True),
        sa.Column("first_overlap", sa.Float(), nullable=False),
        sa.Column("first_exact", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name="fk_revisions_model_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("model_id", "revision", name="pk_revisions"),
    )
    op.create_index("ix_revisions_blob_key", "revisions", ["blob_key"])


def downgrade() -> None:
    op.drop_table("revisions")
