"""How many indices the supports of a space are to have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    policy = sa.Column("size_policy", sa.String(16), nullable=False, server_default="free")
    op.add_column("spaces", policy)
    op.add_column("spaces", sa.Column("fixed_size", sa.BigInteger(), nullable=True))
    op.create_table(
        "size_reports",
        sa.Column("space_id", ID, nullable=False),
        sa.Column("reporter", NAME, nullable=False),
        sa.Column("k_star", sa.BigInteger(), nullable=False),
        sa.Column("reported_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_size_reports_space_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("space_id", "reporter", name="pk_size_reports"),
    )
    op.create_index("ix_size_reports_space_id_k_star", "size_reports", ["space_id", "k_star"])


def downgrade() -> None:
    op.drop_table("size_reports")
    op.drop_column("spaces", "fixed_size")
    op.drop_column("spaces", "size_policy")
