"""The servers of the bucket tests, one of each kind for a whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from tests.support.servers.postgres import Postgres


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A migrated SQLite file."""
    yield from _migrated(f"sqlite:///{tmp_path_factory.mktemp('buckets')}/m.db")


@pytest.fixture(scope="session")
def postgres_database(postgres: Postgres) -> Iterator[Database]:
    """A migrated Postgres database."""
    yield from _migrated(postgres.create("buckets"))


def _migrated(url: str) -> Iterator[Database]:
    database = Database(url, timeout=10)
    migrate(database)
    yield database
    database.close()
