"""Fixtures of all tests: databases, Redis servers, and the service as a process on each database.

A pytest plugin, so that each of these servers starts once a run, whichever folders it covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

import modelkin
from app.infra.db.database import Database
from tests.support.app import compiled_statements
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.http_space import Space
from tests.support.servers.fake_huggingface import Hub, loopback_hub
from tests.support.servers.postgres import Postgres, postgres_server
from tests.support.servers.redis_server import RedisProcess, redis_cluster, redis_server
from tests.support.servers.s3_server import S3, s3_server
from tests.support.servers.server_process import Server

compiled_statements.share()

Start = Callable[..., Server]
Figure = Callable[[str], None]

BACKENDS = (SQLITE.name, pytest.param("postgres", marks=pytest.mark.postgres))
"""The kinds of database, as parameters of tests."""
on_one_database = pytest.mark.parametrize("backend", [SQLITE.name], indirect=True)
"""Marks a test of what no query decides, or whose queries other tests ask of Postgres, too.

Locks, pools and row-level security are Postgres's own: a test of those runs on both.
"""


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The Postgres server that all tests share; tests must not stop it."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each database of the service: every test that starts a service runs on both."""
    if request.param == "sqlite":
        return SQLITE
    return PostgresBackend(request.getfixturevalue("postgres"))


@pytest.fixture
def database(backend: Backend, tmp_path: Path) -> Iterator[Database]:
    """A new, empty database."""
    opened = Database(backend.url(tmp_path), timeout=5)
    yield opened
    opened.close()


@pytest.fixture
def migrated(backend: Backend, tmp_path: Path) -> Iterator[Database]:
    """A new database of this version, without a row that a service has written."""
    opened = Database(backend.migrated_url(tmp_path), timeout=5)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisProcess]:
    """The Redis server behind ``single``."""
    with redis_server() as server:
        yield server


@pytest.fixture
def single(shared_redis: RedisProcess) -> RedisProcess:
    """A shared Redis server, empty when a test begins; tests must not stop it."""
    with shared_redis.client() as client:
        client.flushall()
    return shared_redis


@pytest.fixture(scope="session")
def cluster() -> Iterator[list[RedisProcess]]:
    """A Redis Cluster of three masters."""
    with redis_cluster() as nodes:
        yield nodes


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """The S3 that all tests share; each has a bucket of its own."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def server_on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The shared service on SQLite."""
    yield from _shared(SQLITE, tmp_path_factory)


@pytest.fixture(scope="session")
def server_on_postgres(
    postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The shared service on Postgres, which stops before its database does."""
    yield from _shared(PostgresBackend(postgres), tmp_path_factory)


def _shared(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("service")
    # Operators of Postgres set the key; other services generate it.
    running = Server(folder, backend=backend, MODELKIN_ENCRYPTION_KEYS="x" * 32).start()
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, backend: Backend) -> Server:
    """The service that most tests share; tests must not stop it."""
    shared: Server = request.getfixturevalue(f"server_on_{backend.name}")
    return shared


@pytest.fixture(scope="session")
def sqlite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service on SQLite that the SDK's tests share; each uses its own space."""
    running = Server(tmp_path_factory.mktemp("service")).start()
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture
def start(backend: Backend, tmp_path: Path) -> Iterator[Start]:
    """Start services for one test; they stop with it."""
    started: list[Server] = []

    def start(*flags: str, folder: Path = tmp_path) -> Server:
        started.append(Server(folder, *flags, backend=backend).start())
        return started[-1]

    yield start
    for running in started:
        if running.process.is_alive():
            running.kill()


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    """A plain HTTP client; an answer that its operation does not declare fails the test."""
    # It imports all of the service, and the process that hands out tests carries out none.
    from tests.support.declared_problems import checked

    with checked(httpx.Client(base_url=server.url, timeout=60, trust_env=False)) as client:
        yield client


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[modelkin.Client]:
    """A client of the SDK."""
    with modelkin.Client(server.url) as client:
        yield client


@pytest.fixture
def space(http: httpx.Client) -> Space:
    """An empty space of 10,000 parameters."""
    return Space(http)


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A Hugging Face hub without models."""
    with loopback_hub() as hub:
        yield hub


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Say what a test has seen, in a line at the end of the run, whatever process it ran in."""
    return partial(record_property, "figure")
