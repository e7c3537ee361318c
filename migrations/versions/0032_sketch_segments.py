"""Sketches of a space lie in an object store in packs, which a new machine fetches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "sketch_segments",
        sa.Column("space_id", ID, nullable=False),
        sa.Column("first_id", sa.BigInteger(), nullable=False),
        sa.Column("last_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.String(120), nullable=True),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("space_id", "first_id", name="pk_sketch_segments"),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_sketch_segments_space_id", ondelete="CASCADE"
        ),
    )


def downgrade() -> None:
    op.drop_table("sketch_segments")
