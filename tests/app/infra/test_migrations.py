"""The database's schema: made by migrations, equal to the tables, kept through up and down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

from app.infra.db import migrations
from app.infra.db.database import Database
from app.infra.db.migrations import is_known, migrate, require_current
from app.infra.db.tables.all_tables import Base
from app.infra.errors import Unavailable
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.declared_problems import checked
from tests.support.fixtures import Start
from tests.support.http_space import Space, family, ranking
from tests.support.servers.postgres import Postgres
from tests.support.servers.server_process import ROOT
from tests.support.servers.waiting import wait_for

SCRIPTS = ScriptDirectory(str(ROOT / "migrations"))


def alembic(database: Database, step: Any, revision: str) -> None:
    """Run ``command.upgrade`` or ``command.downgrade`` to a revision, in one transaction."""
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    with database.writing() as session, pytest.MonkeyPatch.context() as patch:
        config.attributes["connection"] = session.connection()
        patch.setattr(ScriptDirectory, "from_config", lambda _: SCRIPTS)  # they are read once
        step(config, revision)


SQLITE_ALONE = "ix_spaces_tenant_id_supports_signatures_support_bytes"
"""The index that Postgres does without."""
POSTGRES_ALONE = {
    "banded_signatures",
    "revisions",
    "signatures",
    "sketches",
    "tags",
    "tensor_counts",
}
"""Tables that have a ``tenant_id`` there, for their policies alone."""


def differences(database: Database) -> list[Any]:
    """What Alembic would change to make the database as the tables say."""
    with database.reading() as session:
        connection = session.connection()

        def is_made_here(item: Any, _name: object, kind: str, *_: object) -> bool:
            """Alembic knows nothing that is made on one database alone."""
            if connection.dialect.name == "sqlite":
                return True
            hidden = kind == "column" and item.name == "tenant_id"
            return not (kind == "index" and item.name == SQLITE_ALONE) and not (
                hidden and item.table.name in POSTGRES_ALONE
            )

        options = {
            "compare_type": True,
            "compare_server_default": True,
            "include_object": is_made_here,
        }
        context = MigrationContext.configure(connection, opts=options)
        found: list[Any] = compare_metadata(context, Base.metadata)
        return found


@pytest.mark.smoke
def test_migrations_make_what_the_tables_say(database: Database) -> None:
    """From nothing to the newest revision leaves no difference to the metadata."""
    migrate(database)
    require_current(database)
    assert [] == differences(database)


def test_there_is_one_newest_revision() -> None:
    """The revisions are one line without branches, numbered as their files say."""
    assert 1 == len(SCRIPTS.get_heads())
    walked = [script.revision for script in SCRIPTS.walk_revisions()]
    assert walked == sorted(walked, reverse=True)
    assert all(is_known(revision) for revision in walked)
    assert not is_known(f"{int(walked[0]) + 1:04}")


def constraints(database: Database) -> set[tuple[str, str]]:
    """Table and name of every constraint and index, unnamed ones as the empty name."""
    found = set()
    with database.reading() as session:
        inspector = inspect(session.connection())
        for table in set(inspector.get_table_names()) - {"alembic_version"}:
            groups = (
                inspector.get_foreign_keys(table),
                inspector.get_unique_constraints(table),
                inspector.get_check_constraints(table),
                inspector.get_indexes(table),
                [inspector.get_pk_constraint(table)],
            )
            found |= {(table, entry["name"] or "") for group in groups for entry in group}
    return found


@pytest.mark.slow
def test_every_constraint_has_the_name_of_the_tables(
    migrated: Database, backend: Backend, tmp_path: Path
) -> None:
    """What migrations name is what the metadata names; only SQLite's automatic keys have none."""
    other = Database(backend.url(tmp_path / "other"), timeout=5)
    with other.writing() as session:
        Base.metadata.create_all(session.connection())
    assert constraints(other) == constraints(migrated)
    automatic = (
        {"bucket_builds", "fingerprints", "models", "spaces"} if backend.name == "sqlite" else set()
    )
    assert automatic == {table for table, name in constraints(migrated) if not name}
    other.close()


@pytest.mark.slow
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


def test_a_migration_beside_a_service_waits_and_is_in_no_deadlock(
    postgres: Postgres, tmp_path: Path
) -> None:
    """A transaction that has a part, and then asks for the whole, gets it; then it migrates."""
    backend = PostgresBackend(postgres)
    with closing(Database(backend.migrated_url(tmp_path), timeout=5)) as database:
        alembic(database, command.downgrade, "0033")
        with ThreadPoolExecutor(1) as threads:
            with database.reading() as session:
                session.execute(text("SELECT * FROM tags"))
                migrated = threads.submit(migrate, database)
                waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                while postgres.execute(waiting) == [(0,)]:
                    assert not migrated.done()
                for _ in range(3):
                    session.execute(text("SELECT * FROM tenants"))
                assert not migrated.done()
            migrated.result(60)
        assert [] == differences(database)


@pytest.fixture
def busy_autovacuum(postgres: Postgres) -> Iterator[None]:
    """A server that looks every second for tables to vacuum, in place of every ten minutes."""
    postgres.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
    postgres.execute("SELECT pg_reload_conf()")
    yield
    postgres.execute("ALTER SYSTEM RESET autovacuum_naptime")
    postgres.execute("SELECT pg_reload_conf()")


@pytest.mark.usefixtures("busy_autovacuum")
def test_a_migration_ends_a_vacuum_that_the_server_began(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives way only to a lock that waits for a second, which is longer than a request waits.

    Here it takes a minute: some 200 pages, and it pauses for 400 ms at each.
    """
    url = PostgresBackend(postgres).migrated_url(tmp_path)
    name = str(make_url(url).database)
    monkeypatch.setattr(migrations, "_MAX_LOCK_WAIT_S", 4.0)
    running = f"SELECT count(*) FROM pg_stat_progress_vacuum WHERE relid = '{_VACUUMED}'::regclass"
    with closing(Database(url, timeout=5)) as database:
        alembic(database, command.downgrade, "0033")
        for statement in _SLOW_TO_VACUUM:
            postgres.execute(statement, name)
        wait_for(lambda: postgres.execute(running, name) != [(0,)])
        migrate(database)
        assert [] == differences(database)


_VACUUMED = "released_blobs"
_SLOW_TO_VACUUM = (
    f"""ALTER TABLE {_VACUUMED} SET (fillfactor = 10, autovacuum_vacuum_threshold = 1,
    autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)""",
    "INSERT INTO tenants (name) VALUES ('t')",
    f"""INSERT INTO {_VACUUMED} (key, released_at, tenant_id, size)
    SELECT 'k' || number, now(), tenants.id, 0 FROM tenants, generate_series(1, 2000) AS number""",
    f"UPDATE {_VACUUMED} SET size = 1",
)


def test_a_second_process_waits_for_the_migration_of_the_first(
    postgres: Postgres, tmp_path: Path
) -> None:
    """And then for tables in use, each for longer than the database's time limit."""
    url = PostgresBackend(postgres).migrated_url(tmp_path)
    limit, name = 0.3, make_url(url).database
    with (
        closing(Database(url, timeout=limit)) as database,
        psycopg.connect(host=str(postgres.data), user="postgres", dbname=name) as first,
        psycopg.connect(host=str(postgres.data), user="postgres", dbname=name) as reader,
        ThreadPoolExecutor(1) as threads,
    ):
        alembic(database, command.downgrade, "0033")
        first.execute("SELECT pg_advisory_xact_lock(hashtext('modelkin migrations'))")
        reader.execute("SELECT * FROM tags")
        migrated = threads.submit(migrate, database)
        for holder in (first, reader):
            time.sleep(2 * limit)
            assert not migrated.done()
            holder.commit()
        migrated.result(60)
        assert [] == differences(database)


@pytest.mark.slow
def test_down_and_up_keeps_what_is_stored(start: Start) -> None:
    """A populated database goes down step by step, each of them up and down again, to the first
    revision and from there to the newest without a loss; and so from half of the way.
    """
    server = start()
    models = family(5, 10_000, 300, 8)
    with checked(httpx.Client(base_url=server.url)) as http:
        space = Space(http, layout=[{"name": "w", "shape": [100, 100]}])
        for name, support in models.items():
            space.put(name, support, tags=["t", name])
        before = space.show(), space.model("m003"), ranking(space.neighbors("m000"))
    server.stop()
    database = Database(server.database_url, timeout=5)
    stored = rows(database)
    newest, *older = [script.revision for script in SCRIPTS.walk_revisions()]
    assert len(older) >= 9
    half, newer = len(older) // 2, newest
    for revisions in (older[:half], older[half:]):
        alembic(database, command.downgrade, newer)
        for revision in revisions:
            alembic(database, command.downgrade, revision)
            alembic(database, command.upgrade, newer)
            alembic(database, command.downgrade, revision)
            newer = revision
        alembic(database, command.upgrade, "head")
        assert (newer, stored, []) == (newer, rows(database), differences(database))
    database.close()
    server.start()
    with checked(httpx.Client(base_url=server.url)) as http:
        space.http = http
        assert before == (space.show(), space.model("m003"), ranking(space.neighbors("m000")))


def rows(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """What the service keeps of supports, by table: all but marks that are drawn again."""
    kept = {
        "spaces": "id, name, num_parameters, scheme, num_perm, seed, version, supports, bands",
        "models": "id, name, kind, support_size, digest, blob_key, revision, version, updated_at",
        "signatures": 'model_id, "values"',
        "tags": "model_id, tag",
    }
    with database.reading() as session:
        return {
            table: [
                tuple(row)
                for row in session.execute(text(f"SELECT {columns} FROM {table} ORDER BY 1, 2"))
            ]
            for table, columns in kept.items()
        }


@pytest.mark.slow
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
    """A SQLite file."""
    opened = Database(SQLITE.url(tmp_path), timeout=5)
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
    """A Postgres database."""
    opened = Database(PostgresBackend(postgres).url(tmp_path), timeout=5)
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


def test_a_foreign_key_holds(migrated: Database) -> None:
    """A row of a model that is not there is refused by the database itself."""
    with pytest.raises(IntegrityError, match=r"(?i)foreign key"), migrated.writing() as session:
        session.execute(text("INSERT INTO tags (model_id, tag) VALUES (77, 'x')"))


def insert_and_fail(database: Database, ran: list[str]) -> None:
    """A change that raises when it has written."""
    with database.writing() as session:
        session.execute(text("INSERT INTO tenants (name) VALUES ('x')"))
        session.after_rollback(lambda: ran.append("rollback"))
        session.after_commit(lambda: ran.append("commit"))
        raise ZeroDivisionError


def test_a_write_that_raises_is_rolled_back(migrated: Database) -> None:
    """An error inside a change undoes it, runs what was queued for that, and not what was not."""
    ran: list[str] = []
    with pytest.raises(ZeroDivisionError):
        insert_and_fail(migrated, ran)
    with migrated.reading() as reader:
        count = reader.execute(text("SELECT count(*) FROM tenants")).scalar_one()
    assert (["rollback"], 0) == (ran, count)


def test_a_writer_that_waits_too_long_is_unavailable(backend: Backend, tmp_path: Path) -> None:
    """A lock that is not released is a fault of the moment, not of the request."""
    database = Database(backend.migrated_url(tmp_path), timeout=0.1)
    change = text("UPDATE tenants SET name = name || 'x'")
    with database.writing() as first:
        first.execute(text("INSERT INTO tenants (name) VALUES ('a')"))
    with database.writing() as first:
        first.execute(change)
        with pytest.raises(Unavailable, match="lock"), database.writing() as second:
            second.execute(change)
    database.close()
