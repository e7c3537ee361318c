"""The newest map of each space."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "maps",
        sa.Column("space_id", ID, nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("similarity", sa.String(16), nullable=False),
        sa.Column("models", sa.BigInteger(), nullable=False),
        sa.Column("edges", sa.BigInteger(), nullable=False),
        sa.Column("parts", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_maps_space_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("space_id", name="pk_maps"),
    )


def downgrade() -> None:
    op.drop_table("maps")
