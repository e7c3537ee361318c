"""The warm-up at start: what it loads, in which order and how much, and what /readyz answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy.engine import make_url

from app.bootstrap import open_services
from app.infra.db.database import Database
from app.main import create_app
from app.models.index.registry import IndexRegistry
from app.models.index.space_index import index_bytes
from app.models.index.warmup import IndexWarmup, WarmupProgress
from app.operations.maintenance.cleanup import Cleanup
from app.settings import Settings
from tests.app.operations.maintenance.test_cleanup import INDEX_MEMORY_BYTES, SPEC, Written
from tests.support.backends import Backend, PostgresBackend
from tests.support.declared_problems import checked
from tests.support.fixtures import Start
from tests.support.http_space import Space, assert_problem, family
from tests.support.servers.postgres import Postgres
from tests.support.servers.server_process import Server


def loaded(database: Database, indexes: IndexRegistry) -> WarmupProgress:
    """The progress after a whole warm-up."""
    loading = IndexWarmup(database, indexes)
    loading.announce()
    assert not loading.progress.done
    loading.run(threading.Event())
    return loading.progress


def test_all_spaces_are_loaded_the_largest_first(migrated: Database) -> None:
    """Each space has its index before its first query; empty spaces have none."""
    sizes = {"small": 2, "large": 30, "empty": 0, "middling": 9}
    written = {name: Written(migrated, name) for name in sizes}
    for name, size in sizes.items():
        if size:
            written[name].put(*(f"m{i}" for i in range(size)))
    indexes = IndexRegistry(INDEX_MEMORY_BYTES)
    assert WarmupProgress(True, 3, 3, 41, 41) == loaded(migrated, indexes)
    assert [written[name].id for name in ("large", "middling", "small")] == indexes.space_ids()
    assert (3, 41) == indexes.totals()[:2]


def test_no_more_is_loaded_than_there_is_memory_for(migrated: Database) -> None:
    """A space that does not fit is left out, smaller ones are loaded, and none is evicted."""
    written = {size: Written(migrated, f"s{size}") for size in (50, 30, 20, 5)}
    for size, space in written.items():
        space.put(*(f"m{i}" for i in range(size)))
    indexes = IndexRegistry(index_bytes(SPEC, 40))
    assert WarmupProgress(True, 2, 2, 35, 35) == loaded(migrated, indexes)
    assert [written[30].id, written[5].id] == indexes.space_ids()


def test_a_database_that_is_away_for_a_moment_delays_it(postgres: Postgres, tmp_path: Path) -> None:
    """A read that fails is tried again; until then the warm-up is not done."""
    url = PostgresBackend(postgres).migrated_url(tmp_path)
    database = Database(url, timeout=0.1)
    written = Written(database)
    written.put("a", "b")
    loading = IndexWarmup(database, IndexRegistry(INDEX_MEMORY_BYTES))
    loading.announce()
    thread = threading.Thread(target=loading.run, args=(threading.Event(),))
    with locked(postgres, url):
        thread.start()
        time.sleep(0.5)
        assert not loading.progress.done
    thread.join()
    assert WarmupProgress(True, 1, 1, 2, 2) == loading.progress
    database.close()


def test_it_stops_on_request(postgres: Postgres, tmp_path: Path) -> None:
    """A service that shuts down does not wait for an index."""
    url = PostgresBackend(postgres).migrated_url(tmp_path)
    database = Database(url, timeout=0.1)
    Written(database).put("a")
    stopping = threading.Event()
    thread = threading.Thread(
        target=IndexWarmup(database, IndexRegistry(INDEX_MEMORY_BYTES)).run,
        args=(stopping,),
        daemon=True,
    )
    with locked(postgres, url):
        thread.start()
        time.sleep(0.2)
        stopping.set()
        thread.join(5)
        assert not thread.is_alive()
    database.close()


@contextmanager
def locked(postgres: Postgres, url: str) -> Iterator[None]:
    """Lock the signatures against reads for the duration of the block."""
    name = make_url(url).database
    with psycopg.connect(host=str(postgres.data), user="postgres", dbname=name) as connection:
        connection.execute("LOCK TABLE signatures IN ACCESS EXCLUSIVE MODE")
        yield


@pytest.mark.slow
def test_a_started_service_has_its_indexes(start: Start) -> None:
    """Before the first query a ready service has all indexes, and reports how many."""
    server = start()
    with checked(httpx.Client(base_url=server.url)) as http:
        assert {"status", "version"} == http.get("/readyz").json().keys()
        for seed in (1, 2):
            Space(http).put_all(family(seed, 10_000, 200, 4))
    assert 0 == server.stop()
    server.start()
    with checked(httpx.Client(base_url=server.url)) as http:
        ready = http.get("/readyz").json()
        assert "ok" == ready["status"]
        assert {"status", "version"} == ready.keys()  # strangers may ask: no numbers
        assert "modelkin_index_models 8.0" in http.get("/metrics").text
    assert "loaded the signatures of 8 models in 2 spaces" in server.log.read_text()


@pytest.fixture
def served(postgres: Postgres, tmp_path: Path) -> Iterator[Server]:
    """A service on Postgres with four models, stopped."""
    server = Server(tmp_path, backend=PostgresBackend(postgres)).start()
    with checked(httpx.Client(base_url=server.url)) as http:
        Space(http).put_all(family(1, 10_000, 200, 4))
    assert 0 == server.stop()
    yield server
    server.kill()


def test_a_service_that_loads_says_so_and_answers(served: Server, postgres: Postgres) -> None:
    """Until its indexes are loaded /readyz is a 503 with the progress, and requests are served."""
    with locked(postgres, served.database_url):
        served.launch()
        served.wait_for_address()
        with checked(httpx.Client(base_url=served.url, timeout=20)) as http:
            loading = http.get("/readyz")
            detail = assert_problem(loading, 503, "loading")
            assert 200 == http.get("/livez").status_code
            assert 1 == len(http.get("/v1/spaces").json()["items"])
    assert "1" == loading.headers["retry-after"]
    assert "0% of the signatures" in detail
    assert 0 == loading.json()["loaded"]
    assert "4" not in detail
    assert "ok" == httpx.get(f"{served.wait_until_ready().url}/readyz").json()["status"]


@pytest.mark.slow
def test_readiness_reports_the_progress(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers grow as pages are read, and the answer is 200 only when they are whole."""
    monkeypatch.setattr("app.models.index.repositories.changes._PAGE_SIZE", 10)
    settings = Settings(
        database_url=backend.migrated_url(tmp_path), blob_url=f"file://{tmp_path}/blobs"
    )
    with open_services(settings) as services:
        Written(services[Database]).put(*(f"m{i}" for i in range(25)))
        loading = services[Cleanup].warmup
        seen: list[tuple[int, float]] = []

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(create_app(services))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await client.get("/readyz")

        def look(models: int) -> None:
            add(models)
            answer = asyncio.run(ask())
            seen.append((answer.status_code, answer.json()["loaded"]))

        add = loading.count_loaded
        monkeypatch.setattr(loading, "count_loaded", look)
        loading.announce()
        loading.run(threading.Event())
        ready = asyncio.run(ask())
    assert [(503, 0.4), (503, 0.8), (503, 1)] == seen
    assert (200, "ok") == (ready.status_code, ready.json()["status"])
