"""Verdicts on declared bases that are kept, what they follow, and what was acknowledged.

The version before does not know them. It deletes models and spaces, and their rows go with these.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)
NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
TENANT = "(SELECT nullif(current_setting('modelkin.tenant', true), '')::bigint)"
TABLES = ("findings", "audits", "acknowledgements")
INDEXES = (
    ("space_id", "rank", "name"),
    ("space_id", "rank", "is_acknowledged", "tenant_id"),
    ("tenant_id", "is_acknowledged", "rank", "found_at"),
    ("base_id",),
    ("nearest_id",),
    ("likely_id",),
)
DUE = sa.text("asked > answered")


def upgrade() -> None:
    op.create_table(
        "findings",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("space_id", sa.BigInteger(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("base", NAME, nullable=True),
        sa.Column("finding", sa.JSON(), nullable=True),
        sa.Column("base_id", sa.BigInteger(), nullable=True),
        sa.Column("nearest_id", sa.BigInteger(), nullable=True),
        sa.Column("likely_id", sa.BigInteger(), nullable=True),
        sa.Column("news_from", sa.Float(), server_default="0", nullable=False),
        sa.Column("state", sa.String(32), nullable=True),
        sa.Column("asked", sa.BigInteger(), nullable=False),
        sa.Column("answered", sa.BigInteger(), nullable=False),
        sa.Column("judged_version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("judged_at", MOMENT, nullable=True),
        sa.Column("found_at", MOMENT, nullable=True),
        sa.Column("is_acknowledged", sa.Boolean(), server_default=sa.false(), nullable=False),
        *_keys("findings", "model_id", "models"),
    )
    for columns in INDEXES:
        op.create_index(f"ix_findings_{'_'.join(columns)}", "findings", list(columns))
    op.create_index(
        "ix_findings_due",
        "findings",
        ["space_id", "judged_version", "model_id"],
        sqlite_where=DUE,
        postgresql_where=DUE,
    )
    op.create_table(
        "audits",
        sa.Column("space_id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("models", sa.BigInteger(), nullable=False),
        *_keys("audits", "space_id", "spaces"),
    )
    op.create_table(
        "acknowledgements",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("base", NAME, nullable=True),
        sa.Column("note", sa.String(500), nullable=True),
        sa.Column("made_by", sa.String(32), nullable=True),
        sa.Column("made_at", MOMENT, nullable=False),
        *_keys("acknowledgements", "model_id", "models"),
    )
    if op.get_bind().dialect.name == "postgresql":
        for table in TABLES:
            _protect(table)


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _keys(table: str, column: str, whole: str) -> tuple[Any, ...]:
    return (
        sa.ForeignKeyConstraint(
            [column], [f"{whole}.id"], name=f"fk_{table}_{column}", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=f"fk_{table}_tenant_id"),
        sa.PrimaryKeyConstraint(column, name=f"pk_{table}"),
    )


def _protect(table: str) -> None:
    """Hide the rows of other tenants, as migration 0034 does."""
    own = f"CASE WHEN {TENANT} IS NULL THEN true ELSE tenant_id = {TENANT} END"
    op.execute(f"CREATE POLICY tenant ON {table} USING ({own})")
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
