"""What stored models are to each other by their lines, and the last anatomy of each.

The version before does not know them: it leaves them as they are, and deletes those of fingerprints
that it deletes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)
TENANT = "(SELECT nullif(current_setting('modelkin.tenant', true), '')::bigint)"
TABLES = ("anatomies", "kin")
DUE = sa.text("due_at IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "anatomies",
        sa.Column("fingerprint_id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("due_at", MOMENT, nullable=True),
        sa.Column("is_changed", sa.Boolean(), nullable=False),
        sa.Column("hint", sa.BigInteger(), nullable=True),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("verdict", sa.String(16), nullable=True),
        sa.Column("relations", sa.JSON(), nullable=True),
        sa.Column("parents", sa.JSON(), nullable=True),
        sa.Column("first_share", sa.Float(), server_default="0", nullable=False),
        sa.Column("covered", sa.Float(), server_default="0", nullable=False),
        sa.Column("compared", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("common", sa.Integer(), server_default="0", nullable=False),
        sa.Column("truncated", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("made_at", MOMENT, nullable=True),
        _part("anatomies", "fingerprint_id"),
        _owner("anatomies"),
        sa.PrimaryKeyConstraint("fingerprint_id", name="pk_anatomies"),
    )
    op.create_index(
        "ix_anatomies_tenant_id_due_at",
        "anatomies",
        ["tenant_id", "due_at"],
        sqlite_where=DUE,
        postgresql_where=DUE,
    )
    op.create_table(
        "kin",
        sa.Column("fingerprint_id", ID, nullable=False),
        sa.Column("other_id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("relation", sa.String(32), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("share_of_other", sa.Float(), nullable=False),
        sa.Column("share_of_parameters", sa.Float(), nullable=False),
        sa.Column("keys", sa.Integer(), nullable=False),
        sa.Column("expected", sa.Float(), nullable=False),
        sa.Column("log10_p", sa.Float(), nullable=False),
        sa.Column("made_at", MOMENT, nullable=False),
        _part("kin", "fingerprint_id"),
        _part("kin", "other_id"),
        _owner("kin"),
        sa.PrimaryKeyConstraint("fingerprint_id", "other_id", name="pk_kin"),
    )
    op.create_index("ix_kin_other_id", "kin", ["other_id"])
    op.create_index("ix_kin_tenant_id_verdict", "kin", ["tenant_id", "verdict"])
    if op.get_bind().dialect.name == "postgresql":
        for table in TABLES:
            _protect(table)


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _part(table: str, column: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [column], ["fingerprints.id"], name=f"fk_{table}_{column}", ondelete="CASCADE"
    )


def _owner(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=f"fk_{table}_tenant_id")


def _protect(table: str) -> None:
    """Hide the rows of other tenants, as migration 0034 does."""
    own = f"CASE WHEN {TENANT} IS NULL THEN true ELSE tenant_id = {TENANT} END"
    op.execute(f"CREATE POLICY tenant ON {table} USING ({own})")
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
