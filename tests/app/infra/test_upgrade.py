"""A database of version 0.1.0 and this one: the same tables, and what it had and this has not."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import text

from app.infra.db.database import Database
from app.infra.db.migrations import migrate, standing_of
from app.infra.errors import Unavailable
from tests.app.infra.test_migrations import alembic
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.http_space import family
from tests.support.schema_lines import schema_lines
from tests.support.servers.waiting import wait_for

RECORDED = Path(__file__).parent / "recorded"
"""What the migrations that 0.1.0 was released with have made, as lines."""
MODELS = family(3, 10_000, 500, 12)


def test_the_schema_of_0_1_0_is_what_its_own_migrations_made(
    database: Database, backend: Backend
) -> None:
    """Columns, types, defaults, keys, checks, indexes, and what Postgres' catalog says of them."""
    migrate(database, revision="0026")
    with database.reading() as session:
        found = schema_lines(session.connection())
    recorded = (RECORDED / f"schema-{backend.name}-0.1.0.txt").read_text().splitlines()
    assert recorded == found


def test_a_database_from_before_0_1_0_is_refused_in_a_line(database: Database) -> None:
    """With the version that upgrades it; one of a newer version is distinguished from it."""
    migrate(database)
    with database.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0025'"))
    with pytest.raises(Unavailable, match=r"before 0.1.0 \(0025\): start version 0.1.0"):
        migrate(database)
    assert ["unreleased", "behind", "ahead"] == [standing_of(x) for x in ("0025", "0026", "9999")]


_AS_LISTED = (
    "UPDATE spaces SET banding_version = 1, stop_list_seq = 1 WHERE name = 'listed'",
    "UPDATE spaces SET stop_list_seq = 1 WHERE name = 'begun'",
    "UPDATE bucket_builds SET banding_version = 1 WHERE space_id = "
    "(SELECT id FROM spaces WHERE name = 'listed')",
    "DELETE FROM bucket_entries WHERE build_id = "
    "(SELECT b.id FROM bucket_builds b JOIN spaces s ON s.id = space_id WHERE name = 'listed')",
    "INSERT INTO stop_lists (space_id, version, indices, size, share, models, recall, computed_at) "
    "SELECT id, 1, {bytes}, 2, 0.5, 12, '[]', '2026-01-01 00:00:00+00:00' FROM spaces",
    "INSERT INTO banded_signatures (model_id, version, space_id) "
    "SELECT id, 1, space_id FROM models",
    "INSERT INTO jobs (id, tenant_id, kind, state, parameters, dispatch_no, dispatched, attempts, "
    "cancel_requested, revision, created_at, dedup_key) SELECT 'j' || id, tenant_id, 'stop_list', "
    "'queued', '{{}}', 1, {false}, 0, {false}, 1, '2026-01-01 00:00:00+00:00', 'd' || id "
    "FROM spaces WHERE name = 'begun'",
)
"""What 0.1.0 leaves: a list in force, whose buckets lack most entries; and one that is begun."""


def near(app: AppHarness, space: str) -> list[str]:
    """The neighbours that the buckets of a space find, once they are built."""
    asked = {"model": "m000", "method": "lsh"}
    found: dict[str, Any] = {}

    def by_buckets() -> bool:
        found.update(app.http.get(f"/v1/spaces/{space}/neighbors", params=asked).json())
        return bool(found["method"] == "lsh")

    wait_for(by_buckets)
    return [each["model"] for each in found["items"]]


@pytest.mark.slow
def test_a_database_with_stop_lists_goes_on_without(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Buckets find what they found before there was a list, a job to make one is cancelled, and one
    line says so at the first start alone.
    """
    with open_app(tmp_path, backend) as app:
        before = {}
        for space in ("listed", "begun"):
            app.create_space(space, 10_000)
            for name, support in MODELS.items():
                app.put_support(space, name, support)
            before[space] = near(app, space)
    with closing(Database(backend.url(tmp_path), timeout=30)) as database:
        alembic(database, command.downgrade, "0035")
        _list(database, backend)
        with caplog.at_level(logging.WARNING, "migrations"):
            migrate(database)
            migrate(database)
    [line] = [record.getMessage() for record in caplog.records if record.name == "migrations"]
    assert line.startswith("stop-lists are gone: 2 spaces lose theirs")
    assert "1 jobs" in line
    with open_app(tmp_path, backend) as app:
        for space, found in before.items():
            assert found == near(app, space)
            assert app.http.get(f"/v1/spaces/{space}").json()["stop_list"] is None
        [job] = app.http.get("/v1/jobs", params={"kind": "stop_list"}).json()["items"]
        assert ("cancelled", "job_cancelled") == (job["state"], job["error"]["code"])


def _list(database: Database, backend: Backend) -> None:
    is_sqlite = backend.name == "sqlite"
    words = {"bytes": "x'00'" if is_sqlite else "'x'::bytea", "false": 0 if is_sqlite else "false"}
    with database.writing() as session:
        for statement in _AS_LISTED:
            session.connection().exec_driver_sql(statement.format(**words))
