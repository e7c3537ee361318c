"""The first tables: tenants, spaces, models, their signatures and tags, and what was removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# A migration is a record of what was done, so nothing here is imported from the application.
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.UniqueConstraint("name", name="uq_tenants_name"),
    )
    op.create_table(
        "spaces",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("num_parameters", sa.BigInteger(), nullable=False),
        sa.Column("layout", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("scheme", sa.String(16), nullable=False),
        sa.Column("num_perm", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("supports", sa.BigInteger(), nullable=False),
        sa.Column("signatures", sa.BigInteger(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_spaces_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_spaces"),
        sa.UniqueConstraint("tenant_id", "name", name="uq_spaces_tenant_id_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "models",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("space_id", ID, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("support_size", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(80), nullable=True),
        sa.Column("blob_key", sa.String(120), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("attributes", sa.JSON(), nullable=False),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("base_model", NAME, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.CheckConstraint("kind IN ('support', 'signature')", name=op.f("ck_models_kind")),
        sa.CheckConstraint(
            "(kind = 'support') = (blob_key IS NOT NULL)", name=op.f("ck_models_blob")
        ),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_models_space_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_models_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_models"),
        sa.UniqueConstraint("space_id", "name", name="uq_models_space_id_name"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_models_space_id_version", "models", ["space_id", "version"])
    op.create_index("ix_models_blob_key", "models", ["blob_key"])
    op.create_table(
        "signatures",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("values", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name="fk_signatures_model_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("model_id", name="pk_signatures"),
    )
    op.create_table(
        "tags",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("tag", NAME, nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name="fk_tags_model_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("model_id", "tag", name="pk_tags"),
    )
    op.create_index("ix_tags_tag_model_id", "tags", ["tag", "model_id"])
    op.create_table(
        "removals",
        sa.Column("space_id", ID, nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_removals_space_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("space_id", "version", name="pk_removals"),
    )


def downgrade() -> None:
    for table in ("removals", "tags", "signatures", "models", "spaces", "tenants"):
        op.drop_table(table)
