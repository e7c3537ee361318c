"""Databases with jobs in them: one for each kind of database that the quick tests share, which has
a service that carries jobs out, one for each module whose tests are its workers, and fresh ones for
tests that kill.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.jobs.deployment import Deployment, Process
from tests.support.servers.postgres import Postgres

Shared = tuple[Deployment, Process]
EXPECTED = "failed by a bug\nTraceback"
"""The traceback that a test asks for."""


@pytest.fixture
def deployment(backend: Backend, tmp_path: Path) -> Iterator[Deployment]:
    """A fresh database; no process yet."""
    made = Deployment(tmp_path, backend)
    yield made
    made.close()


@pytest.fixture(scope="module")
def idle_deployment(
    backend: Backend, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """A database that the tests of a module share; no process."""
    made = Deployment(tmp_path_factory.mktemp("idle"), backend)
    yield made
    made.close()


@pytest.fixture(scope="session")
def busy_on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """The shared database on SQLite."""
    yield from _shared(SQLITE, tmp_path_factory)


@pytest.fixture(scope="session")
def busy_on_postgres(
    postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    """The shared database on Postgres, whose service ends before Postgres does."""
    yield from _shared(PostgresBackend(postgres), tmp_path_factory)


def _shared(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    deployment = Deployment(tmp_path_factory.mktemp("deployment"), backend)
    deployment.make_key("default")
    service = deployment.service("--embedded-worker=on", "--auth=required")
    yield deployment, service
    code = service.stop()
    assert code == 0, deployment.logs()
    assert "Traceback" not in deployment.logs().replace(EXPECTED, ""), deployment.logs()
    deployment.close()


@pytest.fixture(scope="session")
def shared_deployment(request: pytest.FixtureRequest, backend: Backend) -> Shared:
    """A database, shared, and its service."""
    shared: Shared = request.getfixturevalue(f"busy_on_{backend.name}")
    return shared


@pytest.fixture(scope="session")
def busy(shared_deployment: Shared) -> Deployment:
    """A database, shared, whose service carries out two jobs at a time and asks for keys."""
    return shared_deployment[0]
