"""Digests of the weights that supports were made from, by which exact copies are found.

The version before does not know them, and leaves them behind those of its new revisions.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TENANT = "(SELECT nullif(current_setting('modelkin.tenant', true), '')::bigint)"
TABLE = "model_weights"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("model_id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("tensors", sa.LargeBinary(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("dtypes", sa.JSON(), nullable=False),
        sa.Column("stated_by", sa.String(8), nullable=False),
        sa.Column("stated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name="fk_model_weights_model_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_model_weights_tenant_id"),
        sa.PrimaryKeyConstraint("model_id", name="pk_model_weights"),
    )
    op.create_index("ix_model_weights_tenant_id_digest", TABLE, ["tenant_id", "digest"])
    if op.get_bind().dialect.name == "postgresql":
        own = f"CASE WHEN {TENANT} IS NULL THEN true ELSE tenant_id = {TENANT} END"
        op.execute(f"CREATE POLICY tenant ON {TABLE} USING ({own})")
        op.execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {TABLE} FORCE ROW LEVEL SECURITY")


def downgrade() -> None:
    op.drop_table(TABLE)
