"""The job that syncs a model of a hub, so that no second one runs beside it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("source_models", sa.Column("looker", sa.String(36), nullable=True))


def downgrade() -> None:
    op.drop_column("source_models", "looker")
