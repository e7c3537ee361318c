"""The models of a space are found by the base that they declare."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

NAME = "ix_models_space_id_base_model"


def upgrade() -> None:
    declared = sa.text("base_model IS NOT NULL")
    op.create_index(
        NAME,
        "models",
        ["space_id", "base_model"],
        sqlite_where=declared,
        postgresql_where=declared,
    )


def downgrade() -> None:
    op.drop_index(NAME, "models")
