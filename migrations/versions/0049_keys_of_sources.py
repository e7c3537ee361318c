"""By what a source finds a space of its own, whose name is for people.

The version before finds such a space by its name, which then was that key, and makes another one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("spaces", sa.Column("source_key", sa.String(100), nullable=True))


def downgrade() -> None:
    op.drop_column("spaces", "source_key")
