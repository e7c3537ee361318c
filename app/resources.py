"""What the service is made of: opened once, handed to whoever needs it, closed in the end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.index.registry import IndexRegistry
from app.services.batch import BatchService
from app.services.buckets import BucketService
from app.services.ingest import IngestService
from app.services.keys import SCOPES, KeyService
from app.services.library import Library
from app.services.search import SearchService
from app.services.similarity import SimilarityService
from app.services.spaces import SpaceService
from app.settings import Settings
from app.stores.blobs import FileBlobs
from app.stores.buckets.redis import RedisBuckets
from app.stores.buckets.sql import SqlBuckets
from app.stores.ports import Tenant
from app.stores.redis import RedisServer
from app.stores.sql.database import Database, Writer
from app.stores.sql.migrate import migrate, require_current
from app.stores.sql.models import blob_keys
from app.stores.sql.spaces import ensure_tenant, store_token
from modelkin._version import __version__
from modelkin.core.kernels.choice import kernels
from modelkin.errors import Unavailable

__all__ = ["DEFAULT_TENANT", "Resources", "open_buckets", "open_resources"]

DEFAULT_TENANT = "default"
_ORPHAN_AGE = 3600.0
"""Seconds after which a blob that no row names is no write under way but what a crash left."""

_BUCKETS_TIMEOUT = 0.5
"""Seconds that a query waits for the buckets before a scan answers in their place."""
_BUCKETS_CONNECTIONS = 8

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resources:
    """The stores and services of one process."""

    version: str
    settings: Settings
    database: Database
    library: Library
    tenant: Tenant
    indexes: IndexRegistry
    spaces: SpaceService
    keys: KeyService
    ingest: IngestService
    batch: BatchService
    search: SearchService
    similarity: SimilarityService


@contextmanager
def open_resources(settings: Settings, *, prepared: bool = False) -> Iterator[Resources]:
    """Open the stores, bring the database up to date, load kernels, clean up after a crash.

    Args:
        settings: of the service.
        prepared: another process of this service has done so just now: only open them.

    Raises:
        Unavailable: a store cannot be opened; says which and why.
    """
    database = Database(
        settings.database_url,
        timeout=settings.database_timeout,
        connections=settings.database_connections,
    )
    try:
        if settings.migrate and not prepared:
            migrate(database)
        else:
            require_current(database)
        with database.writing() as session:
            tenant = ensure_tenant(session, DEFAULT_TENANT)
            _require_keys(session, settings)
            token = store_token(session)
        blobs = FileBlobs(settings.blob_folder, token)
        if not prepared:
            _sweep(database, blobs)
        kernels().warm()
        library = Library(database, blobs)
        indexes = IndexRegistry()
        ingest = IngestService(blobs)
        with open_buckets(settings, database) as buckets:
            buckets.start()
            yield Resources(
                version=__version__,
                settings=settings,
                database=database,
                library=library,
                tenant=tenant,
                indexes=indexes,
                spaces=SpaceService(blobs, indexes, buckets),
                keys=KeyService(),
                ingest=ingest,
                batch=BatchService(database, ingest),
                search=SearchService(library, indexes, buckets),
                similarity=SimilarityService(library),
            )
    finally:
        database.close()


@contextmanager
def open_buckets(settings: Settings, database: Database) -> Iterator[BucketService]:
    """The LSH buckets, in Redis where there is one; none is connected to yet.

    Raises:
        Unavailable: the database cannot be opened once more, for buckets in it.
    """
    if settings.redis_url is not None:
        server = RedisServer(settings.redis_url, timeout=_BUCKETS_TIMEOUT)
        service, close = BucketService(database, RedisBuckets(server)), server.close
    else:
        # Of their own, since a query that waits for them must not wait as long as a writer may.
        own = Database(
            settings.database_url, timeout=_BUCKETS_TIMEOUT, connections=_BUCKETS_CONNECTIONS
        )
        service, close = BucketService(database, SqlBuckets(own)), own.close
    try:
        yield service
    finally:
        service.close()
        close()


def _require_keys(session: Writer, settings: Settings) -> None:
    """Store the initial key where there is none; refuse to open to a network without any."""
    keys = KeyService()
    if settings.initial_key is not None and not keys.any(session):
        initial = settings.initial_key.get_secret_value()
        keys.create(session, DEFAULT_TENANT, key=initial, label="initial key", scopes=SCOPES)
    if settings.auth == "off" and not settings.on_loopback:
        raise Unavailable(
            f"MODELKIN_AUTH=off would open everything to whoever reaches {settings.host}: "
            f"listen on 127.0.0.1, or leave it at auto"
        )
    if not settings.on_loopback and not keys.any(session):
        raise Unavailable(
            "there is no key, so nobody could use the service: make one with "
            "`python -m app keys create`, or set MODELKIN_INITIAL_KEY"
        )


def _sweep(database: Database, blobs: FileBlobs) -> None:
    with database.reading() as session:
        swept = blobs.sweep(lambda keys: blob_keys(session, keys), older_than=_ORPHAN_AGE)
    if swept:
        log.info("removed %d supports that no model names", swept)
