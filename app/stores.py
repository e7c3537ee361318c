"""Open the stores: bring the database up to date, and remove what a crash left behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.blob_stores import open_blobs
from app.fingerprints.finding.feed import reading_feeds
from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.finding.redis_shards import RedisShards, epoch_of
from app.fingerprints.finding.shared_index import SharedIndex
from app.hubs.ingestion.files.downloads import Downloads
from app.infra.db.database import Database, Reader, Writer
from app.infra.db.migrations import migrate, require_current
from app.infra.db.visibility import role_without_policies
from app.infra.errors import Unavailable
from app.infra.programs import service_command
from app.infra.storage.blobs import BlobStore
from app.models.catalog.reader import ModelReader
from app.models.catalog.support_cache import SupportCache
from app.models.index.buckets.redis import RedisBuckets
from app.models.index.buckets.service import BucketService
from app.models.index.buckets.sql import SqlBuckets
from app.models.index.registry import IndexRegistry
from app.models.index.sketch_folder import SketchFolder
from app.models.spaces.repositories.spaces import all_spaces
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.service import SCOPES, KeyService
from app.tenancy.auth.tenants import ensure_tenant, store_token

if TYPE_CHECKING:
    from app.infra.storage.redis import RedisServer

__all__ = [
    "DEFAULT_TENANT",
    "Stores",
    "open_buckets",
    "open_finding",
    "open_redis",
    "open_stores",
    "uncached_reader",
]

log = logging.getLogger(__name__)

DEFAULT_TENANT = "default"
_BUCKETS_TIMEOUT_S = 0.5
"""Seconds that a query waits for the buckets before a scan answers in their place."""
_BUCKETS_POOL_SIZE = 8


@dataclass(frozen=True, slots=True)
class Stores:
    """The open stores of one process.

    Attributes:
        token: the database's token, which names its files and keys in other stores.
        tenant: the owner of everything where keys are not required.
    """

    database: Database
    tenant: Tenant
    token: str
    blobs: BlobStore
    reader: ModelReader
    indexes: IndexRegistry
    sketches: SketchFolder
    downloads: Downloads


@contextmanager
def open_stores(settings: Settings, *, prepared: bool) -> Iterator[Stores]:
    """Open all stores, bring the database up to date, clean up after a crash.

    Args:
        prepared: whether another process of this service has just prepared the stores; then they
            are only opened.

    Raises:
        Unavailable: a store cannot be opened; the message says which and why.
    """
    timeout, connections = settings.database_timeout_seconds, settings.database_pool_size
    with closing(
        Database(settings.database_url, timeout=timeout, connections=connections)
    ) as database:
        if settings.migrate and not prepared:
            migrate(database)
        else:
            require_current(database)
        with database.writing() as session:
            tenant = ensure_tenant(session, DEFAULT_TENANT)
            _require_keys(session, settings, warns=not prepared)
            if settings.keys_required and not prepared:
                _warn_of_role(session)
            token = store_token(session)
        blobs = open_blobs(settings, database)
        support_cache = SupportCache(settings.support_cache_entries, settings.support_cache_bytes)
        downloads = Downloads(settings.checkpoint_dir / token)
        with (
            closing(blobs),
            closing(SketchFolder(settings.sketch_dir / token)) as sketches,
        ):
            if not prepared:
                _sweep_sketches(database, sketches)
                downloads.sweep()
            yield Stores(
                database,
                tenant,
                token,
                blobs,
                ModelReader(database, blobs, support_cache),
                IndexRegistry(settings.index_memory_bytes),
                sketches,
                downloads,
            )


def uncached_reader(database: Database, blobs: BlobStore) -> ModelReader:
    """A reader for one pass over the supports: it keeps none open, and closes none that is open."""
    return ModelReader(database, blobs, SupportCache(0, 0))


@contextmanager
def open_redis(settings: Settings) -> Iterator[RedisServer | None]:
    """Make the client of the configured Redis, not connected yet; None where no Redis is set.

    All uses share one server object: while Redis is down, a request waits for it once.
    """
    if settings.redis_url is None:
        yield None
        return
    from app.infra.storage.redis import RedisServer  # slow to import, and often not needed

    with closing(RedisServer(settings.redis_url, timeout=_BUCKETS_TIMEOUT_S)) as server:
        yield server


@contextmanager
def open_finding(
    settings: Settings, stores: Stores, server: RedisServer | None
) -> Iterator[FindingIndex]:
    """Open the index of fingerprints: on the local disk, and in Redis where the settings say so.

    Raises:
        Unavailable: it is to be in Redis, and no Redis is set.
    """
    folder = settings.sketch_dir / stores.token / "finding"
    if settings.fingerprint_index == "disk":
        with closing(FindingIndex(folder)) as index:
            yield index
        return
    if server is None:
        raise Unavailable(
            "MODELKIN_FINGERPRINT_INDEX is redis, and no Redis is set: set MODELKIN_REDIS_URL"
        )
    from app.infra.storage.redis_batches import RedisBatches  # slow to import, and seldom needed

    batches = RedisBatches(server, "what the others hold of fingerprints answers alone")
    shards = RedisShards(batches, epoch_of(stores.token))
    with (
        closing(SharedIndex(shards, reading_feeds(stores.database))) as shared,
        closing(FindingIndex(folder, shared=shared)) as index,
    ):
        yield index


@contextmanager
def open_buckets(database: Database, server: RedisServer | None) -> Iterator[BucketService]:
    """Open the LSH buckets, in Redis where there is one.

    Raises:
        Unavailable: the database cannot be opened a second time, for its buckets.
    """
    with ExitStack() as stack:
        if server is not None:
            service = BucketService(database, RedisBuckets(server))
        else:
            # A second pool: a query must not wait for buckets as long as a writer may wait.
            own = database.second_pool(timeout=_BUCKETS_TIMEOUT_S, connections=_BUCKETS_POOL_SIZE)
            stack.callback(own.close)
            service = BucketService(database, SqlBuckets(own))
        stack.callback(service.close)
        yield service


def _require_keys(session: Writer, settings: Settings, *, warns: bool) -> None:
    """Store the initial key if there is no key; refuse to listen on a network without keys.

    A service for this machine alone gets a warning, if requests need a key.
    """
    keys = KeyService()
    if settings.initial_key is not None and not keys.any(session):
        initial = settings.initial_key.get_secret_value()
        keys.create(session, DEFAULT_TENANT, key=initial, label="initial key", scopes=SCOPES)
    if settings.auth == "off" and not settings.on_loopback:
        raise Unavailable(
            f"MODELKIN_AUTH=off would open everything to every client that reaches "
            f"{settings.host}: "
            f"listen on 127.0.0.1, or leave it at auto"
        )
    if settings.keys_required and not keys.any(session):
        found = (
            "there is no key, so no client could use the service: make one with "
            f"`{service_command('keys create')}`, or set MODELKIN_INITIAL_KEY"
        )
        if not settings.on_loopback:
            raise Unavailable(found)
        if warns:  # a key may be made at any time, and opens the service at once
            log.warning(found)


def _warn_of_role(session: Reader) -> None:
    """Log a warning if only the queries keep tenants apart."""
    role = role_without_policies(session)
    if role is not None:
        log.warning(
            "row-level security does not bind the role %s of Postgres, so the queries alone keep "
            "tenants apart: connect as a role that is neither a superuser nor has BYPASSRLS, and "
            "owns the tables",
            role,
        )


def _sweep_sketches(database: Database, sketches: SketchFolder) -> None:
    """Delete the sketches of spaces that another machine deleted, or that a crash left."""
    with database.reading() as session:
        sketches.sweep(space.id for space in all_spaces(session))
