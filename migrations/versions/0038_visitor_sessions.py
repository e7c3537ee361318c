"""Sessions of visitors of the explorer, whose cookies held the key itself before.

The version before does not know them: there visitors sign in again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TENANT = "(SELECT nullif(current_setting('modelkin.tenant', true), '')::bigint)"
TABLE = "visitor_sessions"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("key_id", ID, nullable=False),
        sa.Column("sha256", sa.LargeBinary(32), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name="fk_visitor_sessions_tenant_id"
        ),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name="fk_visitor_sessions_key_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_visitor_sessions"),
        sa.UniqueConstraint("sha256", name="uq_visitor_sessions_sha256"),
    )
    op.create_index("ix_visitor_sessions_key_id_id", TABLE, ["key_id", "id"])
    op.create_index("ix_visitor_sessions_expires_at", TABLE, ["expires_at"])
    if op.get_bind().dialect.name == "postgresql":
        own = f"CASE WHEN {TENANT} IS NULL THEN true ELSE tenant_id = {TENANT} END"
        op.execute(f"CREATE POLICY tenant ON {TABLE} USING ({own})")
        op.execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {TABLE} FORCE ROW LEVEL SECURITY")


def downgrade() -> None:
    op.drop_table(TABLE)
