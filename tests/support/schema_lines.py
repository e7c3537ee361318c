"""The schema of a database as lines, each of which names one thing, to compare two databases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, inspect, text

__all__ = ["schema_lines"]

_CATALOG = {
    "constraint": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND contype <> 'n'""",
    "index": """
        SELECT indrelid::regclass::text, indexrelid::regclass::text, pg_get_indexdef(indexrelid)
        FROM pg_index WHERE indrelid IN
        (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)""",
    "collation": """
        SELECT attrelid::regclass::text, attname, collname FROM pg_attribute
        JOIN pg_class ON pg_class.oid = attrelid
        JOIN pg_collation ON pg_collation.oid = attcollation
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0""",
    "storage": """
        SELECT attrelid::regclass::text, attname, attstorage::text || attcompression::text
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0
        AND NOT attisdropped""",
    "table": """
        SELECT relname::text, relkind::text,
        concat_ws(' ', relrowsecurity, relforcerowsecurity, reloptions::text)
        FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S', 'v')""",
    "policy": """
        SELECT tablename::text, policyname::text, concat_ws(' ', cmd, permissive, roles::text, qual,
        with_check) FROM pg_policies WHERE schemaname = 'public'""",
    "trigger": """
        SELECT tgrelid::regclass::text, tgname::text, pg_get_triggerdef(oid)
        FROM pg_trigger WHERE NOT tgisinternal""",
}
"""What Postgres says of its tables, beside what SQLAlchemy asks it: table, name and definition."""
_OPTIONS = re.compile(r"WITHOUT ROWID|AUTOINCREMENT|STRICT|COLLATE \w+", re.IGNORECASE)


def schema_lines(connection: Connection) -> list[str]:
    """Everything that SQLAlchemy finds by inspection, and the catalog of Postgres; in order.

    The table of Alembic is left out.
    """
    inspector = inspect(connection)
    tables = sorted(set(inspector.get_table_names()) - {"alembic_version"})
    lines = [line for table in tables for line in _inspected(inspector, table)]
    if connection.dialect.name == "postgresql":
        found = sorted(
            f"{of} {kind} {name}: {' '.join(str(definition).split())}"
            for kind, query in _CATALOG.items()
            for of, name, definition in connection.execute(text(query))
        )
        return lines + [line for line in found if not line.startswith("alembic_version")]
    return lines + sorted(_options(connection))


def _inspected(inspector: Any, table: str) -> Iterator[str]:
    for place, column in enumerate(inspector.get_columns(table)):
        facts = {key: str(value) for key, value in sorted(column.items()) if key != "name"}
        yield f"{table} column {place} {column['name']}: {facts}"
    primary = inspector.get_pk_constraint(table)
    yield f"{table} primary key {primary['name']}: {primary['constrained_columns']}"
    for key in sorted(inspector.get_foreign_keys(table), key=lambda key: str(key["name"])):
        columns = key["constrained_columns"], key["referred_table"], key["referred_columns"]
        yield f"{table} foreign key {key['name']}: {columns} {key['options']}"
    for kind, found in (
        ("unique", inspector.get_unique_constraints(table)),
        ("check", inspector.get_check_constraints(table)),
        ("index", inspector.get_indexes(table)),
    ):
        for each in sorted(found, key=lambda entry: str(entry["name"])):
            unsaid = {"name", "dialect_options"}  # partial indexes follow below, as they were made
            facts = {key: str(value) for key, value in sorted(each.items()) if key not in unsaid}
            yield f"{table} {kind} {each['name']}: {facts}"


def _options(connection: Connection) -> Iterator[str]:
    """What SQLite's own text says of its tables and partial indexes, and no inspection does."""
    query = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    for kind, name, sql in connection.execute(text(query)):
        found = sorted({match.upper() for match in _OPTIONS.findall(sql)})
        where = re.search(r"\bWHERE\b(.*)", sql, re.IGNORECASE | re.DOTALL)
        if kind == "index" and where is not None:
            found.append(" ".join(where[1].split()))
        if found and name != "alembic_version":
            yield f"{name} {kind} options: {found}"
