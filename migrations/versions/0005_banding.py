"""How the signatures of a space are cut into bands."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("spaces", sa.Column("bands", sa.Integer(), nullable=False, server_default="64"))
    op.add_column(
        "spaces", sa.Column("band_rows", sa.Integer(), nullable=False, server_default="4")
    )
    # Signatures shorter than 64 x 4 values make fewer bands; shorter than 4, fewer rows.
    op.execute("UPDATE spaces SET bands = num_perm / 4 WHERE num_perm BETWEEN 4 AND 255")
    op.execute("UPDATE spaces SET bands = 1, band_rows = num_perm WHERE num_perm < 4")


def downgrade() -> None:
    op.drop_column("spaces", "band_rows")
    op.drop_column("spaces", "bands")
