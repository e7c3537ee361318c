"""Stop-lists: the indices that a space leaves out of its bands."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)
COLUMNS = ("banding_version", "stop_lists_begun")


def upgrade() -> None:
    for name in COLUMNS:
        column = sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
        op.add_column("spaces", column)
    op.create_table(
        "stop_lists",
        sa.Column("space_id", ID, nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("indices", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("models", sa.BigInteger(), nullable=False),
        sa.Column("recall", sa.JSON(), nullable=False),
        sa.Column("computed_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_stop_lists_space_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("space_id", "version", name="pk_stop_lists"),
    )
    op.create_table(
        "band_values",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("space_id", sa.BigInteger(), nullable=False),
        sa.Column("minhash", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name="fk_band_values_model_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("model_id", "version", name="pk_band_values"),
    )
    unbanded = sa.text("minhash IS NULL")
    op.create_index(
        "ix_band_values_unbanded",
        "band_values",
        ["space_id", "version", "model_id"],
        sqlite_where=unbanded,
        postgresql_where=unbanded,
    )


def downgrade() -> None:
    op.drop_table("band_values")
    op.drop_table("stop_lists")
    for name in COLUMNS:
        op.drop_column("spaces", name)
