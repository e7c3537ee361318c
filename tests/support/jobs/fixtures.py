"""Databases with jobs in them: one for each kind of database that the quick tests share, which has
a service that carries jobs out, and fresh ones for tests that kill.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backends import Backend
from tests.support.jobs.deployment import Deployment, Process
from tests.support.servers.postgres import Postgres

Deployments = dict[str, tuple[Deployment, Process]]
EXPECTED = "failed by a bug\nTraceback"
"""The traceback that a test asks for."""


@pytest.fixture
def deployment(backend: Backend, tmp_path: Path) -> Iterator[Deployment]:
    """A fresh database; no process yet."""
    made = Deployment(tmp_path, backend)
    yield made
    made.close()


@pytest.fixture(scope="session")
def deployments(postgres: Postgres) -> Iterator[Deployments]:
    """The shared databases by their kind, and their services, ended before Postgres is."""
    made: Deployments = {}
    yield made
    for deployment, service in made.values():
        code = service.stop()
        assert code == 0, deployment.logs()
        assert "Traceback" not in deployment.logs().replace(EXPECTED, ""), deployment.logs()
        deployment.close()


@pytest.fixture(scope="session")
def busy(
    backend: Backend,
    deployments: Deployments,
    tmp_path_factory: pytest.TempPathFactory,
) -> Deployment:
    """A database, shared, whose service carries out two jobs at a time and asks for keys."""
    if backend.name not in deployments:
        made = Deployment(tmp_path_factory.mktemp("deployment"), backend)
        made.make_key("default")
        deployments[backend.name] = made, made.service("--embedded-worker=on", "--auth=required")
    return deployments[backend.name][0]
