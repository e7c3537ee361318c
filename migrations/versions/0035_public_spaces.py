"""Public spaces, counts of the queries that tenants make of them, and the secret of their noise."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# Where the setting is not set, as in psql and in the version before, all rows are seen.
TENANT = "(SELECT nullif(current_setting('modelkin.tenant', true), '')::bigint)"
NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    # Nullable, since SQLite adds no other column without a default.
    op.add_column("installation", sa.Column("noise_key", sa.LargeBinary(32), nullable=True))
    installation = sa.table("installation", sa.column("noise_key", sa.LargeBinary))
    op.execute(installation.update().values(noise_key=secrets.token_bytes(32)))
    op.create_table(
        "public_spaces",
        sa.Column("space_id", ID, autoincrement=False, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("owner", NAME, nullable=False),
        sa.Column("space", NAME, nullable=False),
        sa.Column("step", sa.Float(), nullable=False),
        sa.Column("floor", sa.Float(), nullable=False),
        sa.Column("daily_queries", sa.Integer(), nullable=False),
        sa.Column("description", sa.String(500), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_public_spaces_space_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_public_spaces_tenant_id"),
        sa.PrimaryKeyConstraint("space_id", name="pk_public_spaces"),
        sa.UniqueConstraint("owner", "space", name="uq_public_spaces_owner_space"),
    )
    op.create_table(
        "public_query_counts",
        sa.Column("space_id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("queries", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_public_query_counts_space_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name="fk_public_query_counts_tenant_id"
        ),
        sa.PrimaryKeyConstraint("space_id", "tenant_id", name="pk_public_query_counts"),
    )
    op.create_index("ix_public_query_counts_day", "public_query_counts", ["day"])
    if op.get_bind().dialect.name == "postgresql":
        for table in ("public_spaces", "public_query_counts"):
            own = f"CASE WHEN {TENANT} IS NULL THEN true ELSE tenant_id = {TENANT} END"
            op.execute(f"CREATE POLICY tenant ON {table} USING ({own})")
            op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
            op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute("CREATE POLICY public ON public_spaces FOR SELECT USING (true)")


def downgrade() -> None:
    op.drop_table("public_query_counts")
    op.drop_table("public_spaces")
    op.drop_column("installation", "noise_key")
