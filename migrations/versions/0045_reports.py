"""Reports about the models of a tenant, and the policies by which they are made.

The version before does not know them, and keeps those that there are.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)
TENANT = "(SELECT nullif(current_setting('modelkin.tenant', true), '')::bigint)"
TABLES = ("reports", "report_policies")


def upgrade() -> None:
    op.create_table(
        "reports",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("since", MOMENT, nullable=True),
        sa.Column("until", MOMENT, nullable=False),
        sa.Column("size", sa.JSON(), nullable=False),
        sa.Column("made_by", sa.String(8), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("content_bytes", sa.BigInteger(), nullable=False),
        sa.Column("bill", sa.LargeBinary(), nullable=True),
        sa.Column("bill_bytes", sa.BigInteger(), nullable=False),
        _owner("reports"),
        sa.PrimaryKeyConstraint("id", name="pk_reports"),
    )
    op.create_index("ix_reports_tenant_id_id", "reports", ["tenant_id", "id"])
    op.create_table(
        "report_policies",
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("every_seconds", sa.BigInteger(), nullable=False),
        sa.Column("keep", sa.Integer(), nullable=False),
        sa.Column("last_at", MOMENT, nullable=True),
        sa.Column("next_at", MOMENT, nullable=False),
        _owner("report_policies"),
        sa.PrimaryKeyConstraint("tenant_id", name="pk_report_policies"),
    )
    op.create_index("ix_report_policies_next_at", "report_policies", ["next_at"])
    if op.get_bind().dialect.name == "postgresql":
        for table in TABLES:
            _protect(table)


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _owner(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=f"fk_{table}_tenant_id")


def _protect(table: str) -> None:
    """Hide the rows of other tenants, as migration 0034 does."""
    own = f"CASE WHEN {TENANT} IS NULL THEN true ELSE tenant_id = {TENANT} END"
    op.execute(f"CREATE POLICY tenant ON {table} USING ({own})")
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
