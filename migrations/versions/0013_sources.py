"""Sources of models on hubs, the events they sent, and the state of each model there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def of_a_source(table: str) -> sa.ForeignKeyConstraint:
    """Rows of a source are deleted with it."""
    name = f"fk_{table}_source_id"
    return sa.ForeignKeyConstraint(["source_id"], ["sources.id"], name=name, ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "sources",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("space", NAME, nullable=False),
        sa.Column("url", sa.String(2000), nullable=True),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("token", sa.LargeBinary(), nullable=True),
        sa.Column("importance", sa.String(16), nullable=True),
        sa.Column("base_model", NAME, nullable=True),
        sa.Column("filters", sa.JSON(), nullable=False),
        sa.Column("on_delete", sa.String(16), nullable=False),
        sa.Column("poll_seconds", sa.BigInteger(), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("last_delivery_at", MOMENT, nullable=True),
        sa.Column("last_refusal", sa.JSON(), nullable=True),
        sa.Column("last_error", sa.JSON(), nullable=True),
        sa.Column("last_poll", sa.JSON(), nullable=True),
        sa.Column("last_poll_at", MOMENT, nullable=True),
        sa.Column("next_poll_at", MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sources"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_sources_tenant_id"),
        sa.CheckConstraint("kind IN ('huggingface', 'mlflow')", name=op.f("ck_sources_kind")),
        sa.CheckConstraint("on_delete IN ('keep', 'remove')", name=op.f("ck_sources_on_delete")),
    )
    op.create_index("ix_sources_tenant_id_id", "sources", ["tenant_id", "id"])
    op.create_index("ix_sources_next_poll_at", "sources", ["next_poll_at"])
    op.create_table(
        "deliveries",
        sa.Column("id", ID, nullable=False),
        sa.Column("source_id", sa.String(36), nullable=False),
        sa.Column("delivery_id", sa.String(200), nullable=False),
        sa.Column("event", sa.String(200), nullable=False),
        sa.Column("model", NAME, nullable=True),
        sa.Column("revision", sa.String(200), nullable=True),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(500), nullable=True),
        sa.Column("job_id", sa.String(36), nullable=True),
        sa.Column("received_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
        of_a_source("deliveries"),
        sa.UniqueConstraint("source_id", "delivery_id", name="uq_deliveries_source_id_delivery_id"),
        sa.CheckConstraint(
            "outcome IN ('enqueued', 'ignored', 'recorded')", name=op.f("ck_deliveries_outcome")
        ),
    )
    op.create_index("ix_deliveries_source_id_id", "deliveries", ["source_id", "id"])
    op.create_index("ix_deliveries_received_at", "deliveries", ["received_at"])
    op.create_table(
        "source_models",
        sa.Column("source_id", sa.String(36), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("begun", sa.BigInteger(), nullable=False),
        sa.Column("applied", sa.BigInteger(), nullable=False),
        sa.Column("listed", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.String(200), nullable=True),
        sa.Column("space", NAME, nullable=True),
        sa.Column("model", NAME, nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("looked_at", MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("source_id", "name", name="pk_source_models"),
        of_a_source("source_models"),
    )


def downgrade() -> None:
    # Their jobs stay, as a record: a worker that takes one finds no such kind.
    for table in ("source_models", "deliveries", "sources"):
        op.drop_table(table)
