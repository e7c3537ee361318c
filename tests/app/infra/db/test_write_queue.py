"""Writers of one process on SQLite: each in its turn, none before its time is over."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from app.infra.db.database import Database, Writer
from app.infra.errors import Unavailable
from tests.support.backends import SQLITE

TIMEOUT_S = 0.5
WRITERS = 8


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """One with two tables, whose writers wait half a second."""
    with closing(Database(SQLITE.url(tmp_path), timeout=TIMEOUT_S)) as opened:
        with opened.writing() as session:
            session.execute(text("CREATE TABLE written (n INTEGER PRIMARY KEY)"))
            session.execute(
                text(
                    "CREATE TABLE pointing (n INTEGER "
                    "REFERENCES written (n) DEFERRABLE INITIALLY DEFERRED)"
                )
            )
        yield opened


@contextmanager
def locked(database: Database) -> Iterator[None]:
    """Another process holds the write lock."""
    with closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        yield
        foreign.execute("ROLLBACK")


def insert(database: Database, number: int) -> None:
    with database.writing() as session:
        session.execute(text("INSERT INTO written VALUES (:n)"), {"n": number})


def refused_after(database: Database, number: int) -> float:
    """The seconds after which a write is refused."""
    began = time.monotonic()
    with pytest.raises(Unavailable, match="another writer holds a lock"):
        insert(database, number)
    return time.monotonic() - began


@pytest.mark.slow
def test_writers_go_in_the_order_they_came(tmp_path: Path, database: Database) -> None:
    """Also those of a second pool over the same file; SQLite alone prefers who came last."""
    order: list[int] = []
    with (
        closing(Database(SQLITE.url(tmp_path), timeout=20)) as first,
        closing(first.second_pool(timeout=20, connections=WRITERS)) as second,
        ThreadPoolExecutor(WRITERS) as threads,
    ):

        def write(number: int) -> None:
            with (second if number % 2 else first).writing() as session:
                session.execute(text("INSERT INTO written VALUES (:n)"), {"n": number})
                order.append(number)

        with first.writing() as session:
            session.execute(text("SELECT 1"))
            writing = []
            for number in range(WRITERS):
                writing.append(threads.submit(write, number))
                time.sleep(0.1)
        for one in writing:
            one.result()
    assert list(range(WRITERS)) == order


def test_no_writer_waits_longer_than_its_timeout(database: Database) -> None:
    """Behind another process all of them are refused once the time is over, and none earlier: they
    wait for their turn and for the lock in the same time.
    """
    with locked(database), ThreadPoolExecutor(WRITERS) as threads:
        waits = list(threads.map(lambda n: refused_after(database, n), range(WRITERS)))
    assert all(0.9 * TIMEOUT_S < wait < 10 * TIMEOUT_S for wait in waits), waits
    insert(database, 1)


def test_who_gives_up_leaves_its_place(database: Database) -> None:
    """A writer of this process that takes too long delays no more than those behind it."""
    with ThreadPoolExecutor(1) as threads:
        with database.writing() as session:
            session.execute(text("INSERT INTO written VALUES (0)"))
            assert 0.9 * TIMEOUT_S < threads.submit(refused_after, database, 1).result()
        insert(database, 2)
    with database.reading() as session:
        assert [0, 2] == list(session.scalars(text("SELECT n FROM written")))


def fail_in_the_block(session: Writer) -> None:
    session.execute(text("INSERT INTO written VALUES (1)"))
    raise KeyError


def fail_at_the_commit(session: Writer) -> None:
    session.execute(text("INSERT INTO pointing VALUES (404)"))


def fail_with_the_connection(session: Writer) -> None:
    session.execute(text("INSERT INTO written VALUES (1)"))
    session.connection().invalidate()
    raise KeyError


@pytest.mark.parametrize(
    ("fail", "error"),
    [
        (fail_in_the_block, KeyError),
        (fail_at_the_commit, IntegrityError),
        (fail_with_the_connection, KeyError),
    ],
)
def test_a_turn_ends_with_its_transaction(
    database: Database, fail: Callable[[Writer], None], error: type[Exception]
) -> None:
    """However that ends, the next writer begins, in this thread or in another."""
    for _ in range(2):
        with pytest.raises(error), database.writing() as session:
            fail(session)
        insert(database, 1)
        writer = threading.Thread(target=insert, args=(database, 2))
        writer.start()
        writer.join()
        with database.writing() as session:
            assert 2 == session.execute(text("DELETE FROM written")).rowcount  # type: ignore[attr-defined]


def test_a_second_pool_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    """Another program that closes the database last of all would delete its log."""
    database = Database(SQLITE.url(tmp_path), timeout=5)
    with database.writing() as session:
        session.execute(text("CREATE TABLE t (n INTEGER)"))
    second = database.second_pool(timeout=1, connections=2)
    file = tmp_path / "m.db"
    program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); "
    program += "print(c.execute('SELECT count(*) FROM t').fetchall()); c.close()"
    subprocess.run([sys.executable, "-c", program, str(file)], check=True)
    assert file.with_name("m.db-wal").exists()
    with database.writing() as session:
        session.execute(text("INSERT INTO t VALUES (1)"))
    with second.reading() as session:
        assert 1 == session.execute(text("SELECT count(*) FROM t")).scalar()
    second.close()
    database.close()
