"""The database's schema: made by migrations, equal to the tables, kept through up and down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError

from app.stores.sql.database import Database
from app.stores.sql.migrate import migrate, require_current
from app.stores.sql.tables import Base
from modelkin.errors import Unavailable
from tests.postgres import Postgres
from tests.service.backends import SQLITE, Backend, PostgresBackend
from tests.service.conftest import Start
from tests.service.kin import Space, family, ranking
from tests.service.running import ROOT

SCRIPTS = ScriptDirectory(str(ROOT / "migrations"))


def alembic(database: Database, step: Any, revision: str) -> None:
    """Run ``command.upgrade`` or ``command.downgrade`` to a revision, in one transaction."""
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    with database.writing() as session:
        config.attributes["connection"] = session.connection()
        step(config, revision)


def differences(database: Database) -> list[Any]:
    """What Alembic would change to make the database as the tables say."""
    with database.reading() as session:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(session.connection(), opts=options)
        return compare_metadata(context, Base.metadata)


def test_migrations_make_what_the_tables_say(database: Database) -> None:
    """From nothing to the newest revision leaves no difference to the metadata."""
    migrate(database)
    require_current(database)
    assert [] == differences(database)


def test_there_is_one_newest_revision() -> None:
    """The revisions are one line without branches."""
    assert 1 == len(SCRIPTS.get_heads())


def constraints(database: Database) -> set[tuple[str, str]]:
    """Table and name of every constraint and index, unnamed ones as the empty name."""
    found = set()
    with database.reading() as session:
        inspector = inspect(session.connection())
        for table in Base.metadata.tables:
            groups = (
                inspector.get_foreign_keys(table),
                inspector.get_unique_constraints(table),
                inspector.get_check_constraints(table),
                inspector.get_indexes(table),
                [inspector.get_pk_constraint(table)],
            )
            found |= {(table, entry["name"] or "") for group in groups for entry in group}
    return found


def test_every_constraint_has_the_name_of_the_tables(
    database: Database, backend: Backend, tmp_path: Path
) -> None:
    """What migrations name is what the metadata names; only SQLite's automatic keys have none."""
    migrate(database)
    other = Database(backend.url(tmp_path / "other"), timeout=5)
    with other.writing() as session:
        Base.metadata.create_all(session.connection())
    assert constraints(other) == constraints(database)
    automatic = {"bucket_builds", "models", "spaces"} if backend.name == "sqlite" else set()
    assert automatic == {table for table, name in constraints(database) if not name}
    other.close()


def test_migrating_twice_changes_nothing(database: Database) -> None:
    """A database that is up to date is left as it is."""
    migrate(database)
    migrate(database)
    assert [] == differences(database)


def test_a_failed_migration_changes_nothing(database: Database) -> None:
    """A table in the way stops the migration, and none of the others has been made."""
    with database.writing() as session:
        session.execute(text("CREATE TABLE models (x INTEGER)"))
    with pytest.raises(Unavailable):
        migrate(database)
    with database.reading() as session:
        tables = set(inspect(session.connection()).get_table_names())
    assert {"models"} == tables


@pytest.mark.parametrize("revision", [s.revision for s in SCRIPTS.walk_revisions()][1:])
def test_down_and_up_keeps_what_is_stored(start: Start, revision: str) -> None:
    """A populated database goes down to each older revision and up again without a loss."""
    server = start()
    models = family(5, 10_000, 300, 8)
    with httpx.Client(base_url=server.url) as http:
        space = Space(http, layout=[{"name": "w", "shape": [100, 100]}])
        for name, support in models.items():
            space.put(name, support, tags=["t", name])
        before = space.show(), space.model("m003"), ranking(space.neighbors("m000"))
    server.stop()
    database = Database(server.database_url, timeout=5)
    alembic(database, command.downgrade, revision)
    alembic(database, command.upgrade, "head")
    assert [] == differences(database)
    database.close()
    server.start()
    with httpx.Client(base_url=server.url) as http:
        space.http = http
        assert before == (space.show(), space.model("m003"), ranking(space.neighbors("m000")))


def test_down_to_nothing_and_up_again(database: Database) -> None:
    """Every revision can be undone, down to an empty database."""
    migrate(database)
    alembic(database, command.downgrade, "base")
    with database.reading() as session:
        left = set(inspect(session.connection()).get_table_names())
    assert {"alembic_version"} == left - {"sqlite_sequence"}
    migrate(database)
    assert [] == differences(database)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Database]:
    """A SQLite file of this version."""
    opened = Database(SQLITE.url(tmp_path), timeout=5)
    migrate(opened)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("pragma", "value"),
    [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("busy_timeout", 5000)],
)
def test_the_pragmas_hold_on_every_connection(file: Database, pragma: str, value: object) -> None:
    """WAL, full syncs and foreign keys are in force for readers and writers alike."""
    with file.reading() as reader, file.writing() as writer:
        for session in (reader, writer):
            assert value == session.execute(text(f"PRAGMA {pragma}")).scalar_one()


@pytest.fixture
def served(postgres: Postgres, tmp_path: Path) -> Iterator[Database]:
    """A Postgres database of this version."""
    opened = Database(PostgresBackend(postgres).url(tmp_path), timeout=5)
    migrate(opened)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("setting", "value"),
    [("fsync", "on"), ("synchronous_commit", "on"), ("lock_timeout", "5s"), ("TimeZone", "UTC")],
)
def test_the_settings_hold_on_every_connection(served: Database, setting: str, value: str) -> None:
    """Synchronous commits and a bounded wait for locks are in force for readers and writers."""
    with served.reading() as reader, served.writing() as writer:
        for session in (reader, writer):
            assert value == session.execute(text(f"SHOW {setting}")).scalar_one()


def test_a_reader_of_postgres_cannot_write(served: Database) -> None:
    """A view of the database is a read-only snapshot for the server, too."""
    with served.reading() as session:
        assert "on" == session.execute(text("SHOW transaction_read_only")).scalar_one()
        isolation = session.execute(text("SHOW transaction_isolation")).scalar_one()
    assert "repeatable read" == isolation


def test_a_foreign_key_holds(database: Database) -> None:
    """A row of a model that is not there is refused by the database itself."""
    migrate(database)
    with pytest.raises(IntegrityError, match=r"(?i)foreign key"), database.writing() as session:
        session.execute(text("INSERT INTO tags (model_id, tag) VALUES (77, 'x')"))


def insert_and_fail(database: Database, ran: list[str]) -> None:
    """A change that raises when it has written."""
    with database.writing() as session:
        session.execute(text("INSERT INTO tenants (name) VALUES ('x')"))
        session.after_rollback(lambda: ran.append("rollback"))
        session.after_commit(lambda: ran.append("commit"))
        raise ZeroDivisionError


def test_a_write_that_raises_is_rolled_back(database: Database) -> None:
    """An error inside a change undoes it, runs what was queued for that, and not what was not."""
    migrate(database)
    ran: list[str] = []
    with pytest.raises(ZeroDivisionError):
        insert_and_fail(database, ran)
    with database.reading() as reader:
        count = reader.execute(text("SELECT count(*) FROM tenants")).scalar_one()
    assert (["rollback"], 0) == (ran, count)


def test_a_writer_that_waits_too_long_is_unavailable(backend: Backend, tmp_path: Path) -> None:
    """A lock that nobody lets go of is a fault of the moment, not of the request."""
    database = Database(backend.url(tmp_path), timeout=0.1)
    migrate(database)
    change = text("UPDATE tenants SET name = name || 'x'")
    with database.writing() as first:
        first.execute(text("INSERT INTO tenants (name) VALUES ('a')"))
    with database.writing() as first:
        first.execute(change)
        with pytest.raises(Unavailable, match="lock"), database.writing() as second:
            second.execute(change)
    database.close()
