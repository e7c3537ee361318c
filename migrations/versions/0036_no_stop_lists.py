"""Remove stop-lists: spaces with one return to buckets of all indices.

The tables and columns stay for a release, since version 0.1.0 reads them while it works beside this
one. Buckets that were made under a stop-list lack its indices, so they get no epoch and are built
again.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

SPACES = sa.table(
    "spaces", sa.column("banding_version", sa.BigInteger), sa.column("bucket_epoch", sa.BigInteger)
)
JOBS = sa.table(
    "jobs",
    sa.column("kind", sa.String),
    sa.column("state", sa.String),
    sa.column("dedup_key", sa.String),
    sa.column("error", sa.JSON),
    sa.column("finished_at", sa.DateTime(timezone=True)),
    sa.column("revision", sa.Integer),
)
GONE = {"code": "job_cancelled", "detail": "stop-lists are gone, so this job was cancelled"}

log = logging.getLogger("migrations")


def upgrade() -> None:
    connection = op.get_bind()
    lists = connection.scalar(sa.text("SELECT count(DISTINCT space_id) FROM stop_lists"))
    listed = SPACES.c.banding_version != 0
    connection.execute(
        SPACES.update().where(listed).values(banding_version=0, bucket_epoch=sa.null())
    )
    unfinished = (JOBS.c.kind == "stop_list") & JOBS.c.state.in_(["queued", "running"])
    cancelled = JOBS.update().values(
        state="cancelled",
        dedup_key=None,
        error=GONE,
        finished_at=datetime.now(UTC),
        revision=JOBS.c.revision + 1,
    )
    jobs = connection.execute(cancelled.where(unfinished)).rowcount
    for table in ("banded_signatures", "stop_lists"):
        empty = "TRUNCATE" if connection.dialect.name == "postgresql" else "DELETE FROM"
        op.execute(f"{empty} {table}")
    if lists or jobs:
        log.warning(
            "stop-lists are gone: %d spaces lose theirs and build their LSH buckets again, and %d "
            "jobs that were to make one are cancelled; there is nothing to do",
            lists,
            jobs,
        )


def downgrade() -> None:
    """A version with stop-lists makes them again."""
