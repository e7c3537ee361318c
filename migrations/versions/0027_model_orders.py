"""The models of a space are listed by the sizes of their supports, and by their revisions."""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

COLUMNS = ("support_size", "revision")


def upgrade() -> None:
    for column in COLUMNS:
        op.create_index(f"ix_models_space_id_{column}_name", "models", ["space_id", column, "name"])


def downgrade() -> None:
    for column in COLUMNS:
        op.drop_index(f"ix_models_space_id_{column}_name", "models")
