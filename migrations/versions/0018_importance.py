"""The kind of importance of a space, tensors that it leaves out, and index counts by tensor.

Spaces made before take supports of any kind: their kind is ``unstated``. The next poll of every
source syncs all its models once more, because their supports come out otherwise.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

ADDED = (
    (
        "spaces",
        sa.Column("importance_kind", sa.String(16), nullable=False, server_default="unstated"),
    ),
    ("spaces", sa.Column("importance_base", sa.String(400), nullable=True)),
    ("spaces", sa.Column("importance_note", sa.String(500), nullable=True)),
    ("spaces", sa.Column("exclude", sa.JSON(), nullable=True)),
    ("sources", sa.Column("exclude", sa.JSON(), nullable=True)),
    ("source_models", sa.Column("delta_space", NAME, nullable=True)),
)


def upgrade() -> None:
    for table, column in ADDED:
        op.add_column(table, column)
    op.execute("UPDATE source_models SET revision = '' WHERE revision IS NOT NULL")
    op.create_table(
        "tensor_counts",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("counts", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"],
            ["models.id"],
            name="fk_tensor_counts_model_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("model_id", name="pk_tensor_counts"),
    )


def downgrade() -> None:
    op.drop_table("tensor_counts")
    for table, column in reversed(ADDED):
        op.drop_column(table, column.name)
