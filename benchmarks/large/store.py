"""A Postgres with many made signatures in many spaces, and their buckets in a Redis Cluster.

The servers are those of the tests. The first model of each space is put by the service; all others
are copies of its row, with a name, a version and a signature of their own. Buckets are built by the
service. Models are kin in tens: each takes a value from its family with probability 0.7.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import numpy.typing as npt
import psycopg

from app.bootstrap import open_services
from app.container import Container
from app.infra.db.database import Database
from app.infra.db.tables.catalog import ModelRow
from app.infra.storage.redis import RedisServer
from app.models.catalog.batches import BatchEntry, BatchService
from app.models.index.buckets.protocol import Buckets
from app.models.index.buckets.redis import RedisBuckets
from app.models.index.buckets.service import BucketService
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.spaces import all_spaces
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from modelkin import Signature
from modelkin.types.spaces import SignatureSpec
from tests.support.servers.postgres import Postgres, postgres_server
from tests.support.servers.redis_server import RedisProcess, redis_cluster

__all__ = [
    "FAMILY",
    "NUM_PARAMETERS",
    "SUPPORT_SIZE",
    "LargeStore",
    "build_buckets",
    "fill_cluster",
    "fill_database",
    "large_store",
    "signature_of",
    "sizes",
]

NUM_PARAMETERS: Final = 11_000_000
SUPPORT_SIZE: Final = 1_047_200
FAMILY: Final = 10
"""Models of a family."""
_KEPT: Final = 0.7
"""The share of values that a model has from its family: two of them have half in common."""
_CHUNK: Final = 20_000
_TIMEOUT_S: Final = 60.0
_NAMED: Final = {
    "id": "%(before)s + n",
    "name": "left(md5(t.space_id || '-' || n), 12) || '/model-' || n",
    "version": "n",
}
"""The columns that each copy has anew: names come in no order, as those of a hub do."""

Values = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class LargeStore:
    """The servers, and what is in them.

    Attributes:
        database: of the server.
        settings: of a service on these stores.
        folder: for what else there is on the disk.
        spaces: the largest first.
        seconds: what filling took, by its steps.
    """

    server: Postgres
    database: str
    nodes: Sequence[RedisProcess]
    settings: Settings
    folder: Path
    spaces: list[SpaceRecord]
    seconds: dict[str, float]

    @property
    def models(self) -> int:
        return sum(space.models for space in self.spaces)

    def model(self, space: SpaceRecord, number: int) -> tuple[str, Signature]:
        """The name and the signature of a model in a space that never changed, numbered from 1 on.

        Raises:
            ValueError: it was changed, or deleted.
        """
        copied = f"""
            SELECT m.name, s."values" FROM models m JOIN signatures s ON s.model_id = m.id
            WHERE m.space_id = {space.id} AND m.version = {number}
        """
        ((name, values),) = self.server.execute(copied, self.database)
        return name, signature_of(np.frombuffer(values, np.uint32))


def sizes(models: int, spaces: int) -> list[int]:
    """Models of each space, at least one, by Zipf's law: the second has half as many as the first,
    the third a third, and so on.
    """
    shares = 1 / np.arange(1, spaces + 1)
    counts = 1 + ((models - spaces) * shares / shares.sum()).astype(int)
    counts[0] += models - counts.sum()
    found: list[int] = counts.tolist()
    return found


@contextmanager
def large_store(
    models: int, spaces: int, *, num_perm: int = 256, seed: int = 1
) -> Iterator[LargeStore]:
    """Stores with so many models in so many spaces, on servers of their own."""
    with (
        TemporaryDirectory(prefix="modelkin-large-") as folder,
        postgres_server() as server,
        redis_cluster() as nodes,
    ):
        counts = sizes(models, spaces)
        yield fill_database(
            server, "postgres", nodes, Path(folder), counts, num_perm=num_perm, seed=seed
        )


def fill_database(
    server: Postgres,
    database: str,
    nodes: Sequence[RedisProcess],
    folder: Path,
    counts: Sequence[int],
    *,
    num_perm: int,
    seed: int,
) -> LargeStore:
    """Store so many models in each of some new spaces; the cluster stays empty."""
    settings = Settings(
        _env_file=None,
        database_url=server.url(database),
        redis_url="redis://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes),
        blob_url=f"file://{folder / 'blobs'}",
        download_dir=folder / "downloads",
        database_timeout_seconds=_TIMEOUT_S,
        embedded_worker="off",
    )
    began = time.monotonic()
    with open_services(settings) as services:
        made = [_space(services, f"space-{n:03}", num_perm) for n in range(len(counts))]
    with psycopg.connect(host=str(server.data), user="postgres", dbname=database) as connection:
        for space, count in zip(made, counts, strict=True):
            random = np.random.default_rng((seed, space.id))
            _fill(connection, space.id, _signatures(random, count - 1, num_perm))
    server.execute("SELECT setval('models_id_seq', (SELECT max(id) FROM models))", database)
    server.execute("VACUUM ANALYZE", database)
    seconds = {"models into Postgres": time.monotonic() - began}
    with (
        closing(Database(settings.database_url, timeout=_TIMEOUT_S)) as opened,
        opened.reading() as session,
    ):
        known = sorted(all_spaces(session), key=lambda space: -space.models)
    return LargeStore(server, database, nodes, settings, folder, known, seconds)


def fill_cluster(store: LargeStore) -> None:
    """Have the service build the buckets of all spaces in the cluster."""
    settings = store.settings
    assert settings.redis_url is not None
    with (
        closing(Database(settings.database_url, timeout=_TIMEOUT_S)) as database,
        closing(RedisServer(settings.redis_url, timeout=_TIMEOUT_S)) as redis,
    ):
        build_buckets(database, RedisBuckets(redis), store.spaces)


def build_buckets(database: Database, buckets: Buckets, spaces: Sequence[SpaceRecord]) -> None:
    """Have the service build the buckets of some spaces in a store."""
    with closing(BucketService(database, buckets)) as service:
        for space in spaces:
            service.rebuild(space)


def signature_of(values: Values) -> Signature:
    """Made values as the signature of a support of these spaces."""
    return Signature.from_values(
        values,
        seed=SignatureSpec().seed,
        num_parameters=NUM_PARAMETERS,
        support_size=SUPPORT_SIZE,
    )


def _space(services: Container, name: str, num_perm: int) -> SpaceRecord:
    """A space with one model, put by the service."""
    database = services[Database]
    with database.writing() as session:
        space, _ = services[SpaceService].create(
            session,
            services[Tenant],
            name,
            RequestedSpace(
                num_parameters=NUM_PARAMETERS,
                layout=None,
                scheme=None,
                num_perm=num_perm,
                seed=SignatureSpec().seed,
            ),
        )
    first = BatchEntry("first/model-1", signature_of(np.zeros(num_perm, np.uint32)))
    with database.reading() as session:
        services[BatchService].put(session, space, [first])
    return space


def _fill(connection: psycopg.Connection, space_id: int, made: Values) -> None:
    """Copy the one row of a space, and give each copy a signature."""
    row = connection.execute("SELECT max(id) FROM models").fetchone()
    assert row is not None
    before, count = int(row[0]) - 1, len(made) + 1  # the copies are numbered from 2 on
    columns = [column.name for column in ModelRow.__table__.columns]
    values = ", ".join(_NAMED.get(name, f"t.{name}") for name in columns)
    copied = f"""
        INSERT INTO models ({", ".join(columns)}) SELECT {values}
        FROM models t CROSS JOIN generate_series(2, %(count)s) n WHERE t.space_id = %(space)s
    """
    given = {"before": before, "count": count, "space": space_id}
    connection.execute(copied.encode(), given)
    with (
        connection.cursor() as cursor,
        cursor.copy('COPY signatures (model_id, "values") FROM STDIN (FORMAT BINARY)') as copy,
    ):
        copy.set_types(["int8", "bytea"])
        for number, each in enumerate(made, start=2):
            copy.write_row((before + number, each.tobytes()))
    connection.execute(
        "UPDATE spaces SET signatures = %s, version = %s WHERE id = %s", (count, count, space_id)
    )
    connection.commit()


def _signatures(random: np.random.Generator, count: int, num_perm: int) -> Values:
    """Values of models, whole families one after the other."""
    families = random.integers(0, 1 << 32, (-(-count // FAMILY), num_perm), np.uint32)
    values = np.repeat(families, FAMILY, axis=0)[:count]
    for begin in range(0, count, _CHUNK):
        some = values[begin : begin + _CHUNK]
        changed = random.random(some.shape, np.float32) >= _KEPT
        some[changed] = random.integers(0, 1 << 32, int(changed.sum()), np.uint32)
    return values
