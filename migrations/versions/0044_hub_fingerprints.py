"""Fingerprints of the models of hubs: the setting of a source, and what is read of each model.

Sources that exist have fingerprints: their models are read again, once. The version before does not
read the new columns, and its syncs leave them as they are.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.infra.db.tables.base import Moment

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

INDEX = "ix_source_models_without_fingerprint"
WAITING = sa.text("fingerprint_state IS NULL")
PER_HOUR = 60
"""The rate of new sources, too."""


def upgrade() -> None:
    wanted = sa.Column("fingerprints", sa.Boolean, nullable=False, server_default=sa.true())
    op.add_column("sources", wanted)
    op.add_column("sources", sa.Column("backfill_per_hour", sa.BigInteger, nullable=True))
    op.add_column("sources", sa.Column("next_backfill_at", Moment, nullable=True))
    for name, kind in (
        ("hub_changed_at", Moment),
        ("fingerprints", sa.JSON(none_as_null=True)),
        ("fingerprint_state", sa.String(8)),
        ("fingerprint_asked_at", Moment),
    ):
        op.add_column("source_models", sa.Column(name, kind, nullable=True))
    op.create_index(
        INDEX, "source_models", ["source_id"], sqlite_where=WAITING, postgresql_where=WAITING
    )
    sources = sa.table(
        "sources",
        sa.column("backfill_per_hour", sa.BigInteger),
        sa.column("next_backfill_at", Moment),
        sa.column("created_at", Moment),
    )
    op.execute(
        sources.update().values(backfill_per_hour=PER_HOUR, next_backfill_at=sources.c.created_at)
    )


def downgrade() -> None:
    op.drop_index(INDEX, "source_models")
    for name in ("hub_changed_at", "fingerprints", "fingerprint_state", "fingerprint_asked_at"):
        op.drop_column("source_models", name)
    for name in ("fingerprints", "backfill_per_hour", "next_backfill_at"):
        op.drop_column("sources", name)
