"""Databases with jobs in them: one for each kind of database that the quick tests share, which has
a service that carries jobs out, and fresh ones for tests that kill.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.conftest import backend, postgres
from tests.support.backends import Backend
from tests.support.postgres import Postgres
from tests.support.worker_harness import Process, Shop

__all__ = ["Shops", "backend", "postgres"]

Shops = dict[str, tuple[Shop, Process]]
EXPECTED = "failed by a bug\nTraceback"
"""The traceback that a test asks for."""


@pytest.fixture
def shop(backend: Backend, tmp_path: Path) -> Iterator[Shop]:
    """A fresh database; no process yet."""
    made = Shop(tmp_path, backend)
    yield made
    made.close()


@pytest.fixture(scope="session")
def shops(postgres: Postgres) -> Iterator[Shops]:
    """The shared databases by their kind, and their services, ended before Postgres is."""
    made: Shops = {}
    yield made
    for shop, service in made.values():
        code = service.stop()
        assert code == 0, shop.logs()
        assert "Traceback" not in shop.logs().replace(EXPECTED, ""), shop.logs()
        shop.close()


@pytest.fixture(scope="session")
def busy(
    backend: Backend,
    shops: Shops,
    tmp_path_factory: pytest.TempPathFactory,
) -> Shop:
    """A database, shared, whose service carries out two jobs at a time and asks for keys."""
    if backend.name not in shops:
        made = Shop(tmp_path_factory.mktemp("shop"), backend)
        made.make_key("default")
        shops[backend.name] = made, made.service("--embedded-worker=on", "--auth=required")
    return shops[backend.name][0]
