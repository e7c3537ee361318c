"""The database's schema: made by migrations, equal to the tables, kept through up and down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
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

from app.auth import tenants
from app.catalog.repositories import models
from app.catalog.repositories.models import Content, NewModel
from app.errors import Unavailable
from app.hubs.records import Place
from app.hubs.repositories import source_models
from app.index import stop_list_repository
from app.index.epoch_repository import history
from app.infra.db import migrations
from app.infra.db.database import Database
from app.infra.db.migrations import is_known, migrate, require_current
from app.infra.db.tables.all_tables import Base
from app.spaces import repository as spaces
from app.spaces.records import StopList
from modelkin import Support
from modelkin.core.similarity.overlap import jaccard
from modelkin.types.spaces import SignatureSpec
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.declared_problems import checked
from tests.support.fixtures import Start
from tests.support.http_space import SUPPORT, Space, family, ranking
from tests.support.servers.postgres import Postgres
from tests.support.servers.server_process import ROOT
from tests.support.servers.waiting import wait_for

SCRIPTS = ScriptDirectory(str(ROOT / "migrations"))
MOMENT = "2026-01-01 00:00:00.000000+00:00"


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


def test_every_constraint_has_the_name_of_the_tables(
    migrated: Database, backend: Backend, tmp_path: Path
) -> None:
    """What migrations name is what the metadata names; only SQLite's automatic keys have none."""
    other = Database(backend.url(tmp_path / "other"), timeout=5)
    with other.writing() as session:
        Base.metadata.create_all(session.connection())
    assert constraints(other) == constraints(migrated)
    automatic = {"bucket_builds", "models", "spaces"} if backend.name == "sqlite" else set()
    assert automatic == {table for table, name in constraints(migrated) if not name}
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
    assert len(older) > 10
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


def test_a_model_from_before_revisions_begins_with_its_present(start: Start) -> None:
    """A model that changed before there were revisions has its present one, under its number, and
    what comes next is compared with that.
    """
    server = start()
    supports = list(family(5, 10_000, 300, 4).values())
    with checked(httpx.Client(base_url=server.url)) as http:
        space = Space(http)
        for support in supports[:3]:
            space.put("a", support)
    server.stop()
    database = Database(server.database_url, timeout=5)
    alembic(database, command.downgrade, "0009")
    alembic(database, command.upgrade, "head")
    database.close()
    server.start()
    with checked(httpx.Client(base_url=server.url)) as http:
        space.http = http
        url = space.path("revisions", "a")
        listed = http.get(url).json()
        assert (3, [3]) == (listed["first_revision"], [i["revision"] for i in listed["items"]])
        space.put("a", supports[3])
        listed = http.get(url).json()
        assert (3, [4, 3]) == (listed["first_revision"], [i["revision"] for i in listed["items"]])
        (newest, oldest), expected = listed["items"], jaccard(supports[2], supports[3])
        assert (expected, expected) == (
            newest["self_overlap_previous"],
            newest["self_overlap_first"],
        )
        got = http.get(space.path("supports", "a"), params={"revision": 3}).content
        assert (supports[2], supports[2].digest) == (Support.from_bytes(got), oldest["digest"])


def test_an_older_schema_knows_no_stop_list(migrated: Database) -> None:
    """A space with a stop-list goes down and up as one without, its models whole, and its buckets
    are lost by their version.
    """
    made = StopList(3, 2, 0.5, 1, datetime.now(UTC), (None, 0.5))
    content = Content("signature", 5, None, None, b"x" * 16, band_values=b"y" * 16)
    with migrated.writing() as session:
        tenant = tenants.ensure_tenant(session, "t")
        spec = SignatureSpec(num_perm=4)
        space = spaces.insert_space(
            session, tenant, "s", num_parameters=9, layout=None, signature=spec
        )
        assert space is not None
        spaces.advance(session, space, signatures=1)
        [model] = models.insert_models(session, space, [NewModel("m", content)], version=1)
        stop_list_repository.put_band_values(session, space, 3, {model.id: b"y" * 16})
        stop_list_repository.activate(session, space, made, b"...")
    with migrated.reading() as session:
        assert made == spaces.get_space(session, tenant, "s").stop_list
    alembic(migrated, command.downgrade, "0006")
    alembic(migrated, command.upgrade, "head")
    assert [] == differences(migrated)
    with migrated.reading() as session:
        found = spaces.get_space(session, tenant, "s")
        assert (None, 0, 1) == (found.stop_list, found.banding_version, found.version)
        assert model == models.get_model(session, found, "m")
        assert stop_list_repository.get_band_values(session, model.id, 3) is None
        assert [(1, model.id, b"x" * 16)] == list(history(session, found.id, 0))


def test_a_version_without_the_horizon_follows_no_buckets_beyond_it(migrated: Database) -> None:
    """Going down, the buckets of a space whose removals were pruned are lost, and no others."""
    space = (
        "INSERT INTO spaces (id, tenant_id, name, num_parameters, scheme, num_perm, seed, version, "
        "supports, signatures, created_at, bucket_epoch, compacted_version) VALUES "
        "({0}, 1, 's{0}', 9, 'affine32', 8, 1, 9, 0, 0, '2026-01-01 00:00:00', 77, {1})"
    )
    with migrated.writing() as session:
        session.execute(text("INSERT INTO tenants (id, name) VALUES (1, 't')"))
        for space_id, horizon in ((1, 0), (2, 5)):
            session.execute(text(space.format(space_id, horizon)))
    alembic(migrated, command.downgrade, "0011")
    alembic(migrated, command.upgrade, "head")
    with migrated.reading() as session:
        kept = session.execute(
            text("SELECT bucket_epoch, compacted_version FROM spaces ORDER BY id")
        ).all()
    assert [(77, 0), (None, 0)] == kept


def test_a_version_that_knows_no_tries_takes_them_as_done(migrated: Database) -> None:
    """Down and up, a policy neither asks for the same again nor forgets what was done."""
    policy = (
        "INSERT INTO clustering_policies (space_id, request, debounce_seconds, created_at, "
        "updated_at, seen_version, seen_at, done_version, tried_version, tried_job, failures) "
        "VALUES ({0}, '{{}}', 0, {1}, {1}, 9, {1}, {2}, {3}, 'j', 2)"
    )
    space = (
        "INSERT INTO spaces (id, tenant_id, name, num_parameters, scheme, num_perm, seed, version, "
        "supports, signatures, created_at) VALUES ({0}, 1, 's{0}', 9, 'affine32', 8, 1, 9, 0, 0, "
        "{1})"
    )
    moment = "'2026-01-01 00:00:00'"
    with migrated.writing() as session:
        session.execute(text("INSERT INTO tenants (id, name) VALUES (1, 't')"))
        for number, done, tried in ((1, 4, 7), (2, 8, 5)):
            session.execute(text(space.format(number, moment)))
            session.execute(text(policy.format(number, moment, done, tried)))
    alembic(migrated, command.downgrade, "0014")
    alembic(migrated, command.upgrade, "head")
    columns = "space_id, done_version, tried_version, tried_job, failures"
    with migrated.reading() as session:
        kept = session.execute(
            text(f"SELECT {columns} FROM clustering_policies ORDER BY space_id")
        ).all()
    assert [(1, 7, 0, None, 0), (2, 8, 0, None, 0)] == kept


def test_spaces_from_before_kinds_of_importance_are_unstated(start: Start) -> None:
    """A version before kinds forgets them and the patterns; with this one its spaces answer as
    before, with a note, and take any kind.
    """
    server = start()
    models = family(6, 600, 60, 4)
    layout = [{"name": "w", "shape": [30, 20]}, {"name": "stft", "shape": [50]}]
    with checked(httpx.Client(base_url=server.url)) as http:
        space = Space(http, 600, layout=layout, exclude=["st*"], importance={"kind": "fisher"})
        space.put_all(models)
        before, found = space.show(), space.neighbors("m000")
        assert found["note"] is None
    server.stop()
    database = Database(server.database_url, timeout=5)
    kept = rows(database)
    alembic(database, command.downgrade, "0017")
    with database.reading() as session:
        inspector = inspect(session.connection())
        assert "tensor_counts" not in inspector.get_table_names()
        columns = {column["name"] for column in inspector.get_columns("spaces")}
        assert columns.isdisjoint({"importance_kind", "importance_base", "exclude"})
    alembic(database, command.upgrade, "head")
    assert (kept, []) == (rows(database), differences(database))
    database.close()
    server.start()
    with checked(httpx.Client(base_url=server.url)) as http:
        space.http = http
        unstated = {"kind": "unstated", "base": None, "note": None}
        assert before | {"importance": unstated, "exclude": []} == space.show()
        again = space.neighbors("m000")
        assert ranking(found) == ranking(again)
        assert "does not state" in again["note"]
        stated = {"importance": "weight", "layout": before["layout_digest"]}
        support = models["m001"].to_bytes()
        assert 201 == space.put_bytes("new", support, SUPPORT, **stated).status_code


def test_models_of_hubs_are_synced_once_more(migrated: Database) -> None:
    """What a version before kinds stored of a hub is due, and what is gone from it is not."""
    moment = "'2026-01-01 00:00:00+00:00'"
    alembic(migrated, command.downgrade, "0017")
    with migrated.writing() as session:
        session.execute(text("INSERT INTO tenants (id, name) VALUES (1, 't')"))
        session.execute(
            text(
                "INSERT INTO sources (id, tenant_id, kind, space, secret, filters, on_delete, "
                "created_at, updated_at) VALUES ('s', 1, 'mlflow', 'kin', :secret, '{}', 'keep', "
                f"{moment}, {moment})"
            ),
            {"secret": b"x"},
        )
        for name, revision, space in (("a", "'7'", "'kin'"), ("gone", "NULL", "NULL")):
            session.execute(
                text(
                    "INSERT INTO source_models (source_id, name, sync_started_seq, "
                    "sync_applied_seq, listed, revision, space, model) VALUES "
                    f"('s', '{name}', 1, 1, true, {revision}, {space}, '{name}')"
                )
            )
    alembic(migrated, command.upgrade, "head")
    with migrated.reading() as session:
        seen = list(source_models.seen_models(session, "s"))
        placed = source_models.placed(session, "s", "a")
    assert [("a", ""), ("gone", None)] == [(model.name, model.revision) for model in seen]
    assert Place("a", "kin") == placed


def test_an_older_version_follows_no_hubs(migrated: Database) -> None:
    """Going down, sources and what they delivered go, and the jobs they made stay to be read."""
    moment = "'2026-01-01 00:00:00+00:00'"
    with migrated.writing() as session:
        session.execute(text("INSERT INTO tenants (id, name) VALUES (1, 't')"))
        session.execute(
            text(
                "INSERT INTO sources (id, tenant_id, kind, space, secret, filters, on_delete, "
                "created_at, updated_at) VALUES ('s', 1, 'mlflow', 'kin', :secret, '{}', 'keep', "
                f"{moment}, {moment})"
            ),
            {"secret": b"x"},
        )
        session.execute(
            text(
                "INSERT INTO hub_events (source_id, event_id, event, outcome, job_id, "
                f"received_at) VALUES ('s', 'd', 'e', 'enqueued', 'j', {moment})"
            )
        )
        session.execute(
            text(
                "INSERT INTO source_models (source_id, name, sync_started_seq, sync_applied_seq, "
                "listed) "
                "VALUES ('s', 'm', 1, 1, true)"
            )
        )
        session.execute(
            text(
                "INSERT INTO jobs (id, tenant_id, kind, state, parameters, dispatch_no, "
                "dispatched, attempts, cancel_requested, revision, created_at) VALUES "
                f"('j', 1, 'ingest', 'queued', '{{}}', 1, false, 0, false, 1, {moment})"
            )
        )
    alembic(migrated, command.downgrade, "0012")
    alembic(migrated, command.upgrade, "head")
    assert [] == differences(migrated)
    with migrated.reading() as session:
        counts = [
            session.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
            for table in ("sources", "hub_events", "source_models", "jobs")
        ]
    assert [0, 0, 0, 1] == counts


# One row of each table that 0017 renames, or that has columns which it renames, as 0016 has it.
BEFORE_STANDARD_WORDS: dict[str, dict[str, Any]] = {
    "tenants": {"id": 1, "name": "t"},
    "keys": {
        "id": 3,
        "tenant_id": 1,
        "prefix": "mk_1",
        "sha256": b"k" * 32,
        "label": "ci",
        "scopes": '["read"]',
        "created_at": MOMENT,
    },
    "spaces": {
        "id": 5,
        "tenant_id": 1,
        "name": "s",
        "num_parameters": 9,
        "scheme": "affine32",
        "num_perm": 4,
        "seed": 1,
        "version": 8,
        "supports": 1,
        "signatures": 0,
        "created_at": MOMENT,
        "removal_horizon": 6,
        "stop_lists_begun": 2,
    },
    "models": {
        "id": 7,
        "tenant_id": 1,
        "space_id": 5,
        "name": "m",
        "kind": "support",
        "support_size": 3,
        "blob_key": "b",
        "revision": 1,
        "version": 8,
        "attributes": "{}",
        "created_at": MOMENT,
        "updated_at": MOMENT,
    },
    "removals": {"space_id": 5, "version": 7, "model_id": 6},
    "size_reports": {"space_id": 5, "reporter": "r", "k_star": 4, "reported_at": MOMENT},
    "band_values": {"model_id": 7, "version": 2, "space_id": 5, "minhash": b"v" * 16},
    "clustering_policies": {
        "space_id": 5,
        "asked": '{"algorithm": "leiden"}',
        "debounce_seconds": 1,
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "done_version": 3,
        "seen_version": 4,
        "seen_at": MOMENT,
    },
    "jobs": {
        "id": "j",
        "tenant_id": 1,
        "kind": "ingest",
        "state": "running",
        "parameters": "{}",
        "turn": 2,
        "handed": True,
        "attempts": 1,
        "cancelling": True,
        "revision": 4,
        "created_at": MOMENT,
    },
    "workers": {"id": "w", "started_at": MOMENT, "beat": 11},
    "sources": {
        "id": "so",
        "tenant_id": 1,
        "kind": "mlflow",
        "space": "s",
        "secret": b"x",
        "filters": "{}",
        "on_delete": "keep",
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "last_delivery_at": MOMENT,
    },
    "deliveries": {
        "id": 4,
        "source_id": "so",
        "delivery_id": "d",
        "event": "e",
        "outcome": "enqueued",
        "job_id": "j",
        "received_at": MOMENT,
    },
    "source_models": {
        "source_id": "so",
        "name": "m",
        "begun": 3,
        "applied": 2,
        "looker": "j",
        "looked_at": MOMENT,
        "listed": True,
    },
    "subscriptions": {
        "id": "su",
        "tenant_id": 1,
        "url": "https://a.example",
        "events": "[]",
        "secret": b"x",
        "enabled": True,
        "failures": 0,
        "created_at": MOMENT,
        "updated_at": MOMENT,
    },
    "events": {
        "id": "ev",
        "tenant_id": 1,
        "type": "support.stored",
        "space_id": 5,
        "space": "s",
        "tags": "[]",
        "data": "{}",
        "told": True,
        "compared": False,
        "failures": 1,
        "created_at": MOMENT,
    },
    "sent_deliveries": {
        "id": "de",
        "tenant_id": 1,
        "subscription_id": "su",
        "event_id": "ev",
        "type": "support.stored",
        "body": b"{}",
        "state": "pending",
        "attempts": 0,
        "log": "[]",
        "due_at": MOMENT,
        "created_at": MOMENT,
    },
}
STANDARD_TABLES = {
    "store": "installation",
    "keys": "api_keys",
    "removals": "tombstones",
    "size_reports": "support_size_reports",
    "band_values": "banded_signatures",
    "deliveries": "hub_events",
    "sent_deliveries": "webhook_deliveries",
}
STANDARD_COLUMNS = {
    "spaces": {"removal_horizon": "compacted_version", "stop_lists_begun": "stop_list_seq"},
    "clustering_policies": {"asked": "request"},
    "jobs": {"turn": "dispatch_no", "handed": "dispatched", "cancelling": "cancel_requested"},
    "workers": {"beat": "heartbeat_seq"},
    "sources": {"last_delivery_at": "last_event_at"},
    "deliveries": {"delivery_id": "event_id"},
    "source_models": {
        "begun": "sync_started_seq",
        "applied": "sync_applied_seq",
        "looker": "sync_job_id",
        "looked_at": "synced_at",
    },
    "events": {"told": "fanned_out", "compared": "neighbors_compared"},
}


def whole(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table but the schema's version, with all its columns."""
    with database.reading() as session:
        tables = set(inspect(session.connection()).get_table_names()) - {"alembic_version"}
        return {
            table: [dict(row) for row in session.execute(text(f"SELECT * FROM {table}")).mappings()]
            for table in tables
        }


def test_standard_words_change_names_and_no_value(migrated: Database) -> None:
    """Each renamed table and column holds, row by row, what it held before; down and up again."""
    alembic(migrated, command.downgrade, "0016")
    with migrated.writing() as session:
        for table, row in BEFORE_STANDARD_WORDS.items():
            into = f"{table} ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"
            session.execute(text(f"INSERT INTO {into}"), row)
    before = whole(migrated)
    assert STANDARD_TABLES.keys() | STANDARD_COLUMNS.keys() <= before.keys()
    assert [] == [table for table in STANDARD_TABLES if len(before[table]) != 1]
    names = constraints(migrated)
    after = {
        STANDARD_TABLES.get(table, table): [
            {STANDARD_COLUMNS.get(table, {}).get(name, name): row[name] for name in row}
            for row in rows
        ]
        for table, rows in before.items()
    }
    for _ in range(2):
        alembic(migrated, command.upgrade, "0017")
        assert after == whole(migrated)
        alembic(migrated, command.downgrade, "0016")
        assert (before, names) == (whole(migrated), constraints(migrated))
    alembic(migrated, command.upgrade, "head")
    assert [] == differences(migrated)


def test_contents_that_are_there_are_told_apart(migrated: Database) -> None:
    """Models of an older version get marks for their sketches: supports one each, at random, and
    signatures alone none.
    """
    alembic(migrated, command.downgrade, "0005")
    moment = "'2026-01-01 00:00:00+00:00'"
    with migrated.writing() as session:
        session.execute(text("INSERT INTO tenants (id, name) VALUES (1, 't')"))
        session.execute(
            text(
                "INSERT INTO spaces (id, tenant_id, name, num_parameters, scheme, num_perm, seed, "
                "version, supports, signatures, created_at) "
                f"VALUES (1, 1, 's', 9, 'affine32', 4, 1, 6, 4, 2, {moment})"
            )
        )
        for number in range(6):
            kind, blob = ("signature", "NULL") if number > 3 else ("support", f"'k{number}'")
            session.execute(
                text(
                    "INSERT INTO models (tenant_id, space_id, name, kind, support_size, blob_key, "
                    "revision, version, attributes, created_at, updated_at) VALUES "
                    f"(1, 1, 'm{number}', '{kind}', 3, {blob}, 1, 1, '{{}}', {moment}, {moment})"
                )
            )
    alembic(migrated, command.upgrade, "head")
    with migrated.reading() as session:
        rows = session.execute(text("SELECT kind, content_id FROM models")).all()
    supports = {content_id for kind, content_id in rows if kind == "support"}
    assert (4, True) == (len(supports), all(0 < c < 2**63 for c in supports))
    assert [0, 0] == [content_id for kind, content_id in rows if kind == "signature"]


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
