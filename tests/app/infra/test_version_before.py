"""The version before on a database that this version has migrated: it reads and writes as before.

Both run side by side while processes are renewed. What the version before asks of a database was
recorded by ``tests.support.app.recorded_statements`` when it was released.
"""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.infra.db.database import Database
from app.infra.errors import Unavailable
from app.infra.storage.file_blobs import FileBlobs
from app.models.catalog.repositories.blob_sizes import newest_blobs
from app.tenancy.auth.tenants import store_token
from tests.support.app.harness import open_app
from tests.support.app.recorded_statements import FOLDER, Step, of_version, replay
from tests.support.backends import Backend


@pytest.fixture
def steps(backend: Backend) -> list[Step]:
    """All that the version before asked of a database of this kind."""
    (path,) = FOLDER.glob(f"{backend.name}-*.json")
    return of_version(path)


def test_the_version_before_works_on_the_migrated_database(
    backend: Backend, tmp_path: Path, steps: list[Step]
) -> None:
    """Each statement succeeds, and returns or changes as many rows as before; this version reads
    what it wrote, and it reads on while this version writes.
    """
    url = backend.migrated_url(tmp_path)
    with closing(Database(url, timeout=30)) as database:
        rows = replay(database, steps)
        assert [step.rows for step in steps] == rows
        _store_a_support(database, tmp_path / "blobs")
    with open_app(tmp_path, backend) as app:
        listed = app.http.get("/v1/spaces/s/models").json()["items"]
        assert ["org/m0", "org/m1", "org/m2", "org/signed"] == [each["model"] for each in listed]
        assert ["b"] == app.http.get("/v1/spaces/s/models/org/m1").json()["tags"]
        app.create_space("newer")
        reads = [step for step in steps if step.statement.startswith("SELECT")]
        assert len(replay(app.database, reads)) > 100


def _store_a_support(database: Database, folder: Path) -> None:
    """Leave a file of the version before, whose store this version then takes for its own."""
    with database.reading() as session:
        token, (key,) = store_token(session), newest_blobs(session, limit=1)
    files = FileBlobs(folder, token)
    files.prepare()
    files.write(key, b"a support")


def test_the_recording_is_one_of_writes_and_reads(steps: list[Step]) -> None:
    """It has statements of each kind, on the tables that matter."""
    texts = " ".join({step.statement for step in steps})
    for table in ("spaces", "models", "revisions", "jobs", "events", "subscriptions", "sources"):
        assert f"INSERT INTO {table} " in texts
    assert {"UPDATE", "DELETE", "SELECT"} <= {step.statement.split()[0] for step in steps}


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE models RENAME COLUMN name TO title",
        "ALTER TABLE jobs DROP COLUMN progress",
        "CREATE UNIQUE INDEX ix_no_two ON models (space_id)",
    ],
)
def test_a_migration_that_it_cannot_live_with_is_found(
    backend: Backend, tmp_path: Path, steps: list[Step], change: str
) -> None:
    """A column that has gone or has another name, or a constraint that old rows break."""
    with closing(Database(backend.migrated_url(tmp_path), timeout=30)) as database:
        with database.writing() as session:
            session.execute(text(change))
        with pytest.raises((DBAPIError, Unavailable)) as error:
            replay(database, steps)
    assert re.search("column|unique", f"{error.value} {error.value.__cause__}", re.IGNORECASE)
