"""The last clustering that a policy requested, whatever its outcome."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

TABLE = "clustering_policies"


def upgrade() -> None:
    op.add_column(TABLE, sa.Column("tried_job", sa.String(36), nullable=True))
    for name, kind in (("tried_version", sa.BigInteger()), ("failures", sa.Integer())):
        op.add_column(TABLE, sa.Column(name, kind, nullable=False, server_default="0"))


def downgrade() -> None:
    # The version before treats a requested clustering as done.
    op.execute(
        "UPDATE clustering_policies SET done_version = tried_version"
        " WHERE tried_version > done_version"
    )
    for name in ("failures", "tried_version", "tried_job"):
        op.drop_column(TABLE, name)
