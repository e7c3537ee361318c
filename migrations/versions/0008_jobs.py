"""Jobs, and the workers that carry them out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("space_id", sa.BigInteger(), nullable=True),
        sa.Column("space", NAME, nullable=True),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("progress", sa.JSON(), nullable=True),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("dedup_key", sa.String(200), nullable=True),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("handed", sa.Boolean(), nullable=False),
        sa.Column("worker", sa.String(64), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("cancelling", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("not_before", MOMENT, nullable=True),
        sa.Column("started_at", MOMENT, nullable=True),
        sa.Column("finished_at", MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_jobs_tenant_id"),
        sa.UniqueConstraint(
            "tenant_id", "kind", "dedup_key", name="uq_jobs_tenant_id_kind_dedup_key"
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_jobs_state"),
        ),
        sa.CheckConstraint(
            "(finished_at IS NULL) = (state IN ('queued', 'running'))",
            name=op.f("ck_jobs_finished"),
        ),
    )
    op.create_index("ix_jobs_tenant_id_id", "jobs", ["tenant_id", "id"])
    op.create_index("ix_jobs_state_id", "jobs", ["state", "id"])
    op.create_index("ix_jobs_finished_at", "jobs", ["finished_at"])
    op.create_table(
        "workers",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )


def downgrade() -> None:
    op.drop_table("workers")
    op.drop_table("jobs")
