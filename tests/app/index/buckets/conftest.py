"""The servers of the bucket tests, one of each kind for a whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from tests.support.postgres import postgres
from tests.support.redis_server import RedisProcess, redis_cluster, redis_server


@pytest.fixture(scope="session")
def single() -> Iterator[RedisProcess]:
    """One Redis server; it must survive all tests that share it."""
    with redis_server() as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[list[RedisProcess]]:
    """A Redis Cluster of three masters."""
    with redis_cluster() as nodes:
        yield nodes


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A migrated SQLite file."""
    yield from _migrated(f"sqlite:///{tmp_path_factory.mktemp('buckets')}/m.db")


@pytest.fixture(scope="session")
def postgres_database() -> Iterator[Database]:
    """A migrated Postgres database."""
    with postgres() as url:
        yield from _migrated(url)


def _migrated(url: str) -> Iterator[Database]:
    database = Database(url, timeout=10)
    migrate(database)
    yield database
    database.close()
