"""The write-ahead log of SQLite grows while readers hold it, and gives its room back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from app.models.index.registry import IndexRegistry
from app.operations.maintenance.cleanup import Cleanup
from tests.support.backends import SQLITE

LIMIT = 8 << 20
GROWN = 20


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(SQLITE.url(tmp_path), timeout=5)) as opened:
        migrate(opened)
        with opened.writing() as session:
            session.execute(text("CREATE TABLE kept (value BLOB)"))
        yield opened


def log_size(database: Database) -> int:
    return Path(f"{database.url.database}-wal").stat().st_size


def write(database: Database, size: int = 1) -> None:
    with database.writing() as session:
        session.execute(text("INSERT INTO kept VALUES (zeroblob(:size))"), {"size": size})


def grow(database: Database) -> None:
    """Write a mebibyte again and again beside a reader, which keeps all of it in the log."""
    with database.reading() as session:
        session.execute(text("SELECT count(*) FROM kept"))
        for _ in range(GROWN):
            write(database, 1 << 20)
    assert log_size(database) > GROWN << 20


def test_a_log_that_has_grown_is_cut_by_the_next_writers(database: Database) -> None:
    """Once no reader holds it, it is folded in, and begins again within its limit."""
    grow(database)
    for _ in range(2):  # the first folds it in, the second begins again
        write(database)
    assert log_size(database) <= LIMIT


@pytest.mark.slow
def test_the_clean_up_cuts_the_log(database: Database) -> None:
    """Without another write, to nothing; while a reader holds the log, it stays for the next round,
    and so does a log within its limit.
    """
    cleanup = Cleanup(database, IndexRegistry(1 << 20), every=60)
    grow(database)
    with database.reading() as session:
        session.execute(text("SELECT count(*) FROM kept"))
        write(database)  # what this reader does not see
        cleanup.run_once()
        assert log_size(database) > LIMIT
    cleanup.run_once()
    assert 0 == log_size(database)
    write(database)
    cleanup.run_once()
    assert 0 < log_size(database) <= LIMIT
    with database.reading() as session:
        count = session.execute(text("SELECT count(*) FROM kept")).scalar_one()
    assert GROWN + 2 == count
