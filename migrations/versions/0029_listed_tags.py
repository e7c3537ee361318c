"""Store the tags of a hub's model at its last listing, so that polls notice changes of tags."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("source_models", sa.Column("tags_digest", sa.String(32)))


def downgrade() -> None:
    op.drop_column("source_models", "tags_digest")
