"""Quotas of tenants, sizes of blobs, and blobs that wait for their deletion.

Sizes of the blobs that are there already are measured by the service after its start.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

ADDED = (
    ("tenants", sa.Column("quotas", sa.JSON(), nullable=True)),
    ("installation", sa.Column("lineage", sa.String(32), nullable=True)),
    ("installation", sa.Column("swept_at", sa.DateTime(timezone=True), nullable=True)),
    ("spaces", sa.Column("support_bytes", sa.BigInteger(), nullable=False, server_default="0")),
    ("models", sa.Column("blob_size", sa.BigInteger(), nullable=True)),
    ("revisions", sa.Column("blob_size", sa.BigInteger(), nullable=True)),
)
UNMEASURED = "blob_size IS NULL AND blob_key IS NOT NULL"
INDEXES = (
    ("webhook_deliveries", ["tenant_id", "finished_at"], None),
    ("jobs", ["tenant_id", "kind"], "finished_at IS NULL"),
    ("models", ["space_id", "blob_key"], UNMEASURED),
    ("revisions", ["model_id", "blob_key"], UNMEASURED),
)
SUMMED = ["tenant_id", "supports", "signatures", "support_bytes"]


def upgrade() -> None:
    for table, column in ADDED:
        op.add_column(table, column)
    for table, columns, where in INDEXES:
        some = None if where is None else sa.text(where)
        name = _index(table, columns)
        op.create_index(name, table, columns, sqlite_where=some, postgresql_where=some)
    if _is_sqlite():
        op.create_index(_index("spaces", SUMMED), "spaces", SUMMED)
    op.create_table(
        "released_blobs",
        sa.Column("key", sa.String(120), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_released_blobs"),
    )
    for columns in (["released_at"], ["tenant_id", "released_at"]):
        op.create_index(_index("released_blobs", columns), "released_blobs", columns)
    op.create_table(
        "orphan_blobs",
        sa.Column("key", sa.String(120), nullable=False),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_orphan_blobs"),
    )


def downgrade() -> None:
    op.drop_table("orphan_blobs")
    op.drop_table("released_blobs")
    if _is_sqlite():
        op.drop_index(_index("spaces", SUMMED), "spaces")
    for table, columns, _ in INDEXES:
        op.drop_index(_index(table, columns), table)
    for table, column in reversed(ADDED):
        op.drop_column(table, column.name)


def _is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _index(table: str, columns: list[str]) -> str:
    return f"ix_{table}_{'_'.join(columns)}"
