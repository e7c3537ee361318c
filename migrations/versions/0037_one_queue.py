"""Make the table of jobs the queue: add the time when a job was queued again, for its turn.

Jobs that the version before has queued, dispatched or begun are claimed as they are.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("queued_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    # The version before then dispatches queued jobs, and takes over running ones.
    op.execute("UPDATE jobs SET dispatched = (state = 'running') WHERE finished_at IS NULL")
    op.drop_column("jobs", "queued_at")
