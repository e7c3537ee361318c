"""Sketches that clients send beside their signatures, and an id of each content."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
RANDOM = {
    "sqlite": "random() & 9223372036854775807",
    "postgresql": "CAST(random() * 9223372036854775807 AS bigint)",
}


def upgrade() -> None:
    column = sa.Column("content_id", sa.BigInteger(), nullable=False, server_default="0")
    op.add_column("models", column)
    drawn = RANDOM[op.get_bind().dialect.name]
    op.execute(f"UPDATE models SET content_id = {drawn} WHERE kind = 'support'")  # noqa: S608 of ours
    op.create_table(
        "sketches",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name="fk_sketches_model_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("model_id", name="pk_sketches"),
    )


def downgrade() -> None:
    op.drop_table("sketches")
    op.drop_column("models", "content_id")
