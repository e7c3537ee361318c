"""The places of a pipeline's components, each of which is a model of its own.

The version before takes a pipeline for a repository of several checkpoints, and leaves them alone.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("source_models") as table:
        table.add_column(sa.Column("components", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("source_models") as table:
        table.drop_column("components")
