"""Idempotency keys of requests that may be sent again, with their answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(32), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("location", sa.String(2000), nullable=True),
        sa.Column("answer", sa.LargeBinary(), nullable=True),
        sa.Column("secret_answer", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name="fk_idempotency_keys_tenant_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_idempotency_keys"),
        sa.UniqueConstraint("tenant_id", "key", name="uq_idempotency_keys_tenant_id_key"),
    )
    op.create_index(
        "ix_idempotency_keys_tenant_id_created_at", "idempotency_keys", ["tenant_id", "created_at"]
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])


def downgrade() -> None:
    op.drop_table("idempotency_keys")
