"""Let a space hold supports that are blinded under a key, and store a check value of the key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("spaces", sa.Column("blinding", sa.String(48)))


def downgrade() -> None:
    op.drop_column("spaces", "blinding")
