"""The version up to which the removals of a space may be deleted."""

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
    # The version before has no horizon: buckets that are behind it must not follow the space, so
    # all buckets of such a space are dropped, and built again.
    op.execute("UPDATE spaces SET bucket_epoch = NULL WHERE removal_horizon > 0")
    op.drop_column("spaces", "removal_horizon")
