"""A database without room: what is written is refused, and nothing of it stays."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from sqlalchemy import text

from app.infra.db.database import Database
from app.infra.errors import StorageFull
from tests.support.backends import SQLITE


def fill(database: Database) -> None:
    """Write more than the database may hold."""
    with database.writing() as session:
        session.execute(text("PRAGMA max_page_count = 1"))
        session.execute(text("INSERT INTO kept VALUES (:value)"), {"value": "x" * 100_000})


def test_a_full_database_is_storage_full(tmp_path: Path) -> None:
    """Where SQLite finds no room the writer raises StorageFull, and what was there can be read."""
    database = Database(SQLITE.url(tmp_path), timeout=5)
    try:
        with database.writing() as session:
            session.execute(text("CREATE TABLE kept (value TEXT)"))
        with pytest.raises(StorageFull, match="no room left"):
            fill(database)
        with database.reading() as session:
            assert [] == session.execute(text("SELECT * FROM kept")).all()
    finally:
        database.close()


def test_other_errors_stay_what_they_are_while_a_driver_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's thread imports Postgres's driver beside requests, which may find half of it."""
    monkeypatch.setitem(sys.modules, "psycopg", ModuleType("psycopg"))
    database = Database(SQLITE.url(tmp_path), timeout=5)
    try:
        with pytest.raises(LookupError, match="a bug"), database.reading():
            raise LookupError("a bug")
    finally:
        database.close()
