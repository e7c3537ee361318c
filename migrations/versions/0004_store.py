"""The token that identifies this database."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    store = op.create_table(
        "store",
        sa.Column("token", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("token", name="pk_store"),
    )
    op.bulk_insert(store, [{"token": secrets.token_hex(16)}])


def downgrade() -> None:
    op.drop_table("store")
