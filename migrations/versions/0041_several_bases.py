"""Several bases of one model, and what it is said to be of them.

The version before does not read them: it shows a model of several bases as one without a base, and
keeps both columns.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

INDEX = "ix_models_several_bases"
SEVERAL = sa.text("base_models IS NOT NULL")


def upgrade() -> None:
    op.add_column("models", sa.Column("base_models", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("models", sa.Column("base_relation", sa.String(16), nullable=True))
    op.create_index(INDEX, "models", ["space_id"], sqlite_where=SEVERAL, postgresql_where=SEVERAL)


def downgrade() -> None:
    op.drop_index(INDEX, "models")
    op.drop_column("models", "base_relation")
    op.drop_column("models", "base_models")
