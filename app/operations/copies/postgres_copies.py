"""The tables of a Postgres database, copied while they are in use, and put back.

By ``COPY`` through the driver, in its binary format: the service's image has no ``pg_dump``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Composed, Identifier
from sqlalchemy import URL

from app.infra.db.tables.all_tables import Base
from app.infra.errors import Unavailable
from app.operations.copies.manifests import (
    FEEDS,
    FORGET_BUCKETS,
    FORGET_INDEXES,
    SUPPORT_KEYS,
    Manifest,
    Table,
)

__all__ = ["PostgresCopy", "has_tables", "restore_postgres"]

_CHUNK_BYTES = 1 << 20
_KEYS = f'SELECT blob_key FROM ({SUPPORT_KEYS}) k ORDER BY blob_key COLLATE "C"'  # noqa: S608


class PostgresCopy:
    """A copy of all tables at one moment; writers go on meanwhile.

    Args:
        url: the database's URL.

    Raises:
        Unavailable: the tables cannot be copied.
    """

    kind: Final = "postgresql"

    def __init__(self, url: URL, folder: Path) -> None:
        self.files: list[Path] = []
        """The files of the copy."""
        self._keys = folder / "keys.txt"
        (folder / "tables").mkdir()
        with _connect(url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            self.tables = [_table(connection, table.name) for table in Base.metadata.sorted_tables]
            for table in self.tables:
                self.files.append(_copy_out(connection, table, folder / "tables"))
            with (
                connection.cursor(name="keys") as keys,
                self._keys.open("w", encoding="ascii") as file,
            ):
                file.writelines(f"{key}\n" for (key,) in keys.execute(_KEYS))

    def blob_keys(self) -> Iterator[str]:
        """The keys of all supports that the copy names, ascending."""
        with self._keys.open(encoding="ascii") as file:
            for line in file:
                yield line.rstrip("\n")
        self._keys.unlink()


def has_tables(url: URL) -> bool:
    """Whether the database has any table of a service."""
    names = [*Base.metadata.tables, "alembic_version"]
    with _connect(url) as connection:
        query = "SELECT count(*) FROM unnest(%s::text[]) AS n WHERE to_regclass(n) IS NOT NULL"
        row = connection.execute(query, [names]).fetchone()
    return row is not None and row[0] > 0


def restore_postgres(backup: Path, manifest: Manifest, connection: Any) -> None:
    """Fill the tables of a database, which are new, and of the backup's revision.

    Args:
        connection: a connection of psycopg, in the transaction that has made the tables.

    Raises:
        Unavailable: the database refuses a row.
    """
    with _copying():
        names = SQL(", ").join(Identifier(table.name) for table in manifest.tables)
        connection.execute(SQL("TRUNCATE {}").format(names))  # the rows that the migrations wrote
        protected = _protected_tables(connection)
        for name in protected:  # COPY fills no table whose policies hold for its owner
            connection.execute(SQL("ALTER TABLE {} NO FORCE ROW LEVEL SECURITY").format(name))
        for table in manifest.tables:
            with (
                (backup / f"tables/{table.name}.copy").open("rb") as file,
                connection.cursor() as cursor,
                cursor.copy(_from_file(table)) as rows,
            ):
                while chunk := file.read(_CHUNK_BYTES):
                    rows.write(chunk)
            for sequence, value in table.counters.items():
                connection.execute("SELECT setval(%s, %s)", [sequence, value])
        for name in protected:
            connection.execute(SQL("ALTER TABLE {} FORCE ROW LEVEL SECURITY").format(name))
        connection.execute(FORGET_BUCKETS)
        if any(table.name == FEEDS for table in manifest.tables):
            connection.execute(FORGET_INDEXES)


def _protected_tables(connection: psycopg.Connection) -> list[Identifier]:
    """The tables whose policies hold for their owner, too; none in a backup from before."""
    found = connection.execute(
        "SELECT relname FROM pg_class WHERE relforcerowsecurity "
        "AND relnamespace = current_schema()::regnamespace"
    )
    return [Identifier(name) for (name,) in found]


@contextmanager
def _connect(url: URL) -> Iterator[psycopg.Connection]:
    with (
        _copying(),
        psycopg.connect(
            url.set(drivername="postgresql").render_as_string(hide_password=False)
        ) as connection,
    ):
        yield connection


@contextmanager
def _copying() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Unavailable("the database cannot be copied", reason=reason) from error


def _table(connection: psycopg.Connection, name: str) -> Table:
    columns = [
        row[0]
        for row in connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 "
            "AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            [name],
        )
    ]
    counters = {}
    for column in columns:
        row = connection.execute("SELECT pg_get_serial_sequence(%s, %s)", [name, column]).fetchone()
        if row is None or row[0] is None:
            continue
        last = connection.execute(
            SQL("SELECT last_value FROM {}").format(Identifier(*row[0].replace('"', "").split(".")))
        ).fetchone()
        if last is not None:
            counters[row[0]] = last[0]
    return Table(name=name, columns=columns, counters=counters)


def _copy_out(connection: psycopg.Connection, table: Table, folder: Path) -> Path:
    path = folder / f"{table.name}.copy"
    with (
        path.open("wb") as file,
        connection.cursor() as cursor,
        cursor.copy(_to_file(table)) as rows,
    ):
        file.writelines(bytes(chunk) for chunk in rows)
    return path


def _from_file(table: Table) -> Composed:
    return SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(*_table_identifiers(table))


def _to_file(table: Table) -> Composed:
    """Return a COPY of a query, since COPY reads no partitioned table."""
    name, columns = _table_identifiers(table)
    return SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT binary)").format(columns, name)


def _table_identifiers(table: Table) -> tuple[Identifier, Composed]:
    return Identifier(table.name), SQL(", ").join(map(Identifier, table.columns))
