"""Spaces of data subspaces: what these must share to be compared."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("spaces", sa.Column("subspaces", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    op.drop_column("spaces", "subspaces")
