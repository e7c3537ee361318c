"""LSH buckets, and which build of them is the right one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("spaces", sa.Column("bucket_epoch", sa.BigInteger(), nullable=True))
    op.create_table(
        "bucket_builds",
        sa.Column("id", ID, nullable=False),
        sa.Column("space_id", sa.BigInteger(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("banding_version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_bucket_builds"),
        sa.UniqueConstraint("space_id", name="uq_bucket_builds_space_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "bucket_models",
        sa.Column("build_id", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("keys", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("build_id", "model_id", name="pk_bucket_models"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "bucket_entries",
        sa.Column("build_id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("key", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("build_id", "key", "model_id", name="pk_bucket_entries"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for table in ("bucket_entries", "bucket_models", "bucket_builds"):
        op.drop_table(table)
    op.drop_column("spaces", "bucket_epoch")
