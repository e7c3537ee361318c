"""Declared bases with their tenant in one index, so that families are counted from it alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None

DECLARED = sa.text("base_model IS NOT NULL")
BEFORE, AFTER = "ix_models_space_id_base_model", "ix_models_declared"


def upgrade() -> None:
    replace(BEFORE, AFTER, ["space_id", "base_model", "tenant_id"])


def downgrade() -> None:
    replace(AFTER, BEFORE, ["space_id", "base_model"])


def replace(old: str, new: str, columns: list[str]) -> None:
    op.create_index(new, "models", columns, sqlite_where=DECLARED, postgresql_where=DECLARED)
    op.drop_index(old, "models")
