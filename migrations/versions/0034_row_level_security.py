"""Policies of Postgres that hide the rows of other tenants from a transaction of one.

The version before keeps working: it sets no tenant for its transactions, and so sees all rows.
"""

from __future__ import annotations

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

SET = "nullif(current_setting('modelkin.tenant', true), '')::bigint"
TENANT = f"(SELECT {SET})"
"""The tenant whose rows a transaction sees, read once a statement; NULL for all, as in psql."""
OWNED = {
    "api_keys": "tenant_id",
    "events": "tenant_id",
    "idempotency_keys": "tenant_id",
    "jobs": "tenant_id",
    "learngenes": "tenant_id",
    "merges": "tenant_id",
    "models": "tenant_id",
    "released_blobs": "tenant_id",
    "sources": "tenant_id",
    "spaces": "tenant_id",
    "subscriptions": "tenant_id",
    "tenants": "id",
    "webhook_deliveries": "tenant_id",
}
"""The column with the tenant."""
PARTS = {
    "clustering_policies": ("space_id", "spaces"),
    "clustering_series": ("space_id", "spaces"),
    "clusterings": ("space_id", "spaces"),
    "hub_events": ("source_id", "sources"),
    "layouts": ("space_id", "spaces"),
    "learngene_series": ("space_id", "spaces"),
    "maps": ("space_id", "spaces"),
    "merge_cells": ("merge_id", "merges"),
    "merge_parties": ("merge_id", "merges"),
    "sketch_segments": ("space_id", "spaces"),
    "source_models": ("source_id", "sources"),
    "stop_lists": ("space_id", "spaces"),
    "support_size_reports": ("space_id", "spaces"),
    "tombstones": ("space_id", "spaces"),
}
"""The column that names the whole of a row, and the table of the whole, whose policy decides."""
PARTS_OF_MODELS = (
    "banded_signatures",
    "revisions",
    "signatures",
    "sketches",
    "tags",
    "tensor_counts",
)
"""Tables that requests read by the thousand: each row has its tenant, to save the look-up."""


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table, column in OWNED.items():
        _protect(table, f"{column} = {TENANT}")
    for table, (column, whole) in PARTS.items():
        _protect(table, _is_part(table, column, whole))
    for table in PARTS_OF_MODELS:
        # In two steps, so that no row is written now: existing rows are looked up.
        op.execute(f"ALTER TABLE {table} ADD COLUMN tenant_id BIGINT")
        op.execute(f"ALTER TABLE {table} ALTER COLUMN tenant_id SET DEFAULT {SET}")
        part = _is_part(table, "model_id", "models")
        own = f"CASE WHEN tenant_id IS NULL THEN {part} ELSE tenant_id = {TENANT} END"
        _protect(table, own, written=part)


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in (*PARTS_OF_MODELS, *PARTS, *OWNED):
        op.execute(f"DROP POLICY tenant ON {table}")
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    for table in PARTS_OF_MODELS:
        op.execute(f"ALTER TABLE {table} DROP COLUMN tenant_id")


def _is_part(table: str, column: str, whole: str) -> str:
    """The condition that the transaction sees the whole of a row.

    EXISTS is not used: for it Postgres may read the whole table into a hash for a few rows.
    """
    return f"(SELECT w.id FROM {whole} w WHERE w.id = {table}.{column}) IS NOT NULL"  # noqa: S608


def _protect(table: str, own: str, *, written: str | None = None) -> None:
    """Add a policy to a table; FORCE applies it to the table's owner, too, which the service is.

    Postgres estimates that CASE selects half of the rows. For OR it would estimate one row in 200,
    and then sort a whole table for its first ten rows in place of reading an index in order.
    """
    op.execute(
        f"CREATE POLICY tenant ON {table} USING (CASE WHEN {TENANT} IS NULL THEN true ELSE {own} "
        f"END) WITH CHECK ({TENANT} IS NULL OR {written or own})"
    )
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
