"""Up to which version the removals of a space are told no more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "spaces", sa.Column("removal_horizon", sa.BigInteger(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    # The version before knows of no horizon: buckets that are behind it must not follow, so all of
    # such a space are lost, and built anew.
    op.execute("UPDATE spaces SET bucket_epoch = NULL WHERE removal_horizon > 0")
    op.drop_column("spaces", "removal_horizon")
