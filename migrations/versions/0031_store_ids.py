"""The database knows the store of its supports by an id that this has, too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("installation", sa.Column("store_id", sa.String(32), nullable=True))


def downgrade() -> None:
    op.drop_column("installation", "store_id")
