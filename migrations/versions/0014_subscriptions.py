"""Subscriptions, the outbox of events, and deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "subscriptions",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("url", sa.String(2000), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("space", NAME, nullable=True),
        sa.Column("model", NAME, nullable=True),
        sa.Column("tag", NAME, nullable=True),
        sa.Column("threshold", sa.Float(), nullable=True),
        sa.Column("description", sa.String(2000), nullable=True),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("previous_secrets", sa.LargeBinary(), nullable=True),
        sa.Column("previous_until", MOMENT, nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.String(2000), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failing_since", MOMENT, nullable=True),
        sa.Column("paused_until", MOMENT, nullable=True),
        sa.Column("last_success_at", MOMENT, nullable=True),
        sa.Column("last_failure", sa.JSON(), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_subscriptions"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_subscriptions_tenant_id"),
    )
    op.create_index("ix_subscriptions_tenant_id_id", "subscriptions", ["tenant_id", "id"])
    op.create_table(
        "events",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("space_id", sa.BigInteger(), nullable=False),
        sa.Column("space", NAME, nullable=False),
        sa.Column("model", NAME, nullable=True),
        sa.Column("model_id", sa.BigInteger(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=True),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("told", sa.Boolean(), nullable=False),
        sa.Column("compared", sa.Boolean(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("due_at", MOMENT, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_events_tenant_id"),
    )
    op.create_index("ix_events_told_tenant_id_id", "events", ["told", "tenant_id", "id"])
    op.create_index("ix_events_space_id_told_id", "events", ["space_id", "told", "id"])
    op.create_index("ix_events_model_id_told_id", "events", ["model_id", "told", "id"])
    op.create_index("ix_events_created_at", "events", ["created_at"])
    op.create_table(
        "sent_deliveries",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("subscription_id", sa.String(36), nullable=False),
        sa.Column("event_id", sa.String(36), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("log", sa.JSON(), nullable=False),
        sa.Column("due_at", MOMENT, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("finished_at", MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sent_deliveries"),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name="fk_sent_deliveries_subscription_id",
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint(
            "subscription_id",
            "event_id",
            "type",
            name="uq_sent_deliveries_subscription_id_event_id_type",
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'succeeded', 'failed')", name=op.f("ck_sent_deliveries_state")
        ),
        sa.CheckConstraint(
            "(state = 'pending') = (due_at IS NOT NULL)", name=op.f("ck_sent_deliveries_due")
        ),
    )
    op.create_index(
        "ix_sent_deliveries_subscription_id_id", "sent_deliveries", ["subscription_id", "id"]
    )
    op.create_index(
        "ix_sent_deliveries_subscription_id_due_at_id",
        "sent_deliveries",
        ["subscription_id", "due_at", "id"],
        sqlite_where=sa.text("due_at IS NOT NULL"),
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index("ix_sent_deliveries_finished_at", "sent_deliveries", ["finished_at"])


def downgrade() -> None:
    # The version before sends no webhooks: pending deliveries are lost with their subscriptions.
    for table in ("sent_deliveries", "events", "subscriptions"):
        op.drop_table(table)
