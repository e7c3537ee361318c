"""Keys know the hour of their last use."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("last_used_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    with op.batch_alter_table("api_keys") as keys:
        keys.drop_column("last_used_at")
