"""Rename tables and columns to standard words; names of constraints follow, values stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

# The table's old and new name, and its columns' old and new names.
RENAMED: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("store", "installation", {}),
    ("keys", "api_keys", {}),
    ("removals", "tombstones", {}),
    ("size_reports", "support_size_reports", {}),
    ("band_values", "banded_signatures", {}),
    ("sent_deliveries", "webhook_deliveries", {}),
    ("deliveries", "hub_events", {"delivery_id": "event_id"}),
    ("sources", "sources", {"last_delivery_at": "last_event_at"}),
    (
        "source_models",
        "source_models",
        {
            "begun": "sync_started_seq",
            "applied": "sync_applied_seq",
            "looker": "sync_job_id",
            "looked_at": "synced_at",
        },
    ),
    ("events", "events", {"told": "fanned_out", "compared": "neighbors_compared"}),
    (
        "jobs",
        "jobs",
        {"turn": "dispatch_no", "handed": "dispatched", "cancelling": "cancel_requested"},
    ),
    ("workers", "workers", {"beat": "heartbeat_seq"}),
    (
        "spaces",
        "spaces",
        {"removal_horizon": "compacted_version", "stop_lists_begun": "stop_list_seq"},
    ),
    ("clustering_policies", "clustering_policies", {"asked": "request"}),
)


def upgrade() -> None:
    for old, new, columns in RENAMED:
        rename(old, new, columns)


def downgrade() -> None:
    for old, new, columns in RENAMED:
        rename(new, old, {after: before for before, after in columns.items()})


def rename(table: str, new: str, columns: Mapping[str, str]) -> None:
    for column, name in columns.items():
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO {name}")
    renamed = renaming(table, new, columns)
    if op.get_bind().dialect.name == "sqlite":
        rename_sqlite(table, new, renamed)
    else:
        rename_postgres(table, new, renamed)


def renaming(table: str, new: str, columns: Mapping[str, str]) -> Callable[[str], str]:
    """Rename, in SQL or in a name, the table and whatever the naming convention names after it."""
    named = re.compile(rf"\b((?:pk|fk|uq|ck|ix)_)?{table}(_\w+)?\b")

    def one(match: re.Match[str]) -> str:
        after = match[2] or ""
        for column, name in columns.items():
            after = re.sub(rf"_{column}(?=_|$)", f"_{name}", after)
        return f"{match[1] or ''}{new}{after}"

    return lambda sql: named.sub(one, sql)


def rename_sqlite(table: str, new: str, renamed: Callable[[str], str]) -> None:
    """Recreate the table, since SQLite cannot rename constraints. No other table refers to it."""
    found = op.get_bind().execute(
        sa.text(
            "SELECT type, name, sql FROM sqlite_master WHERE tbl_name = :table AND sql IS NOT NULL "
            "ORDER BY type DESC"
        ),
        {"table": table},
    )
    (_, _, made), *indexes = found.all()
    if renamed(made) != made:
        op.execute(f"ALTER TABLE {table} RENAME TO {table}_before")
        run(renamed(made))
        op.execute(f"INSERT INTO {new} SELECT * FROM {table}_before")  # noqa: S608 of ours
    for _, name, sql in indexes:
        if renamed(sql) != sql:
            op.execute(f"DROP INDEX {name}")
            run(renamed(sql))
    if renamed(made) != made:
        op.execute(f"DROP TABLE {table}_before")


def rename_postgres(table: str, new: str, renamed: Callable[[str], str]) -> None:
    bind = op.get_bind()
    of_table = {"table": table}
    constraints = bind.scalars(
        sa.text("SELECT conname FROM pg_constraint WHERE conrelid = CAST(:table AS regclass)"),
        of_table,
    )
    for name in constraints.all():
        if renamed(name) != name:
            op.execute(f"ALTER TABLE {table} RENAME CONSTRAINT {name} TO {renamed(name)}")
    # An index that backs a constraint was renamed with it; a sequence belongs to its column.
    relations = bind.execute(
        sa.text(
            "SELECT 'INDEX', indexrelid::regclass::text FROM pg_index "
            "WHERE indrelid = CAST(:table AS regclass) UNION ALL "
            "SELECT 'SEQUENCE', c.relname FROM pg_class c JOIN pg_depend d ON d.objid = c.oid "
            "WHERE c.relkind = 'S' AND d.refobjid = CAST(:table AS regclass)"
        ),
        of_table,
    )
    for kind, name in relations.all():
        if renamed(name) != name:
            op.execute(f"ALTER {kind} {name} RENAME TO {renamed(name)}")
    if new != table:
        op.execute(f"ALTER TABLE {table} RENAME TO {new}")


def run(sql: str) -> None:
    """Execute SQL as it is: a colon in it does not mark a parameter."""
    op.get_bind().exec_driver_sql(sql)
