"""A stream that breaks off half-way, its error kept: no later reader of SQLite is in the past."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import ProgrammingError

from app.infra.db.database import Database, Reader
from app.infra.db.tables.catalog import SpaceRow
from app.kinship.clustering.repositories.clusterings import members
from app.models.index.repositories.changes import changed_since
from app.models.index.repositories.epochs import history
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.spaces import all_spaces
from tests.app.operations.maintenance.test_cleanup import Written
from tests.support.backends import SQLITE

STORED = 2500
NAMES = [f"m{number:05}" for number in range(STORED)]

Stream = Callable[[Reader, SpaceRecord], Iterable[Any]]
Begin = Callable[[], AbstractContextManager[Reader]]


class Broken(Exception):
    """The step of a loop fails."""


def driver_rows(session: Reader, _space: SpaceRecord) -> Iterator[Any]:
    """Rows that are read from the driver, without SQLAlchemy."""
    driver = session.connection().connection.driver_connection
    assert driver is not None
    return (row for row in driver.execute("SELECT id FROM models"))


STREAMS: dict[str, Stream] = {
    "history": lambda session, space: history(session, space.id, 0),
    "changed_since": lambda session, space: changed_since(session, space.id, 0),
    "members": lambda session, space: members(session, space, [], None, limit=STORED),
    "members by name": lambda session, space: members(session, space, [], NAMES, limit=STORED),
    "rows": lambda session, _: session.execute(text("SELECT id FROM models")),
    "rows, a few at a time": lambda session, _: session.execute(
        text("SELECT id FROM models"), execution_options={"yield_per": 100}
    ),
    "rows of the driver": driver_rows,
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A space of ``STORED`` models, in a database that each test copies."""
    with closing(
        Database(SQLITE.migrated_url(tmp_path_factory.mktemp("template")), timeout=5)
    ) as database:
        written = Written(database)
        written.put(*NAMES)
        return Path(str(database.url.database))


@pytest.fixture
def space(template: Path, tmp_path: Path) -> SpaceRecord:
    """The space of the copy in this test's folder."""
    shutil.copy(template, tmp_path / "m.db")
    with closing(Database(SQLITE.url(tmp_path), timeout=5)) as copy, copy.reading() as session:
        (found,) = all_spaces(session)
    return found


@pytest.fixture
def database(space: SpaceRecord, tmp_path: Path) -> Iterator[Database]:
    """One connection, so that who breaks a stream leaves it to the next reader."""
    with closing(Database(SQLITE.url(tmp_path), timeout=5, connections=1)) as opened:
        yield opened


@pytest.fixture
def foreign(database: Database) -> Iterator[sqlite3.Connection]:
    """A connection of another process."""
    with closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as opened:
        yield opened


def broken(begin: Begin, stream: Stream, space: SpaceRecord) -> Broken:
    """The error of a loop that broke; its traceback keeps this frame, and so the stream."""
    streaming: Iterable[Any] = ()
    try:
        with begin() as session:
            for _ in (streaming := stream(session, space)):
                raise Broken
    except Broken as error:
        assert streaming
        return error
    raise AssertionError("there was nothing to read")


def assert_in_the_present(database: Database, foreign: sqlite3.Connection) -> None:
    """The connection of the pool reads what others commit, writes at once, and holds up no
    checkpoint of the write-ahead log.
    """
    foreign.execute("UPDATE spaces SET version = 7777")
    with database.reading() as session:
        assert 7777 == session.scalars(select(SpaceRow.version)).one()
    assert 0 == foreign.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    with database.writing() as session:
        session.execute(text("UPDATE spaces SET version = 1"))


@pytest.mark.parametrize("stream", STREAMS.values(), ids=list(STREAMS))
def test_no_stream_outlives_its_transaction(
    database: Database, foreign: sqlite3.Connection, space: SpaceRecord, stream: Stream
) -> None:
    """Whatever reads half of its rows, and although the error is kept."""
    kept = broken(database.reading, stream, space)
    assert_in_the_present(database, foreign)
    assert kept.__traceback__ is not None


def test_nor_does_a_stream_of_a_writer(
    database: Database, foreign: sqlite3.Connection, space: SpaceRecord
) -> None:
    """A transaction that wrote is rolled back; one that ends well closes its streams as well."""
    kept = broken(database.writing, STREAMS["history"], space)
    assert_in_the_present(database, foreign)
    with database.writing() as session:
        session.execute(text("UPDATE spaces SET version = 1"))
        unfinished = history(session, space.id, 0)
        next(unfinished)
    assert_in_the_present(database, foreign)
    with pytest.raises(ProgrammingError, match="closed"):
        list(unfinished)
    assert kept.__traceback__ is not None
