"""What the service is made of: opened once, handed to whoever needs it, closed in the end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.index.registry import IndexRegistry
from app.services.ingest import IngestService
from app.services.library import Library
from app.services.search import SearchService
from app.services.similarity import SimilarityService
from app.services.spaces import SpaceService
from app.settings import Settings
from app.stores.blobs import FileBlobs
from app.stores.ports import Tenant
from app.stores.sql.database import Database
from app.stores.sql.migrate import migrate, require_current
from app.stores.sql.models import blob_keys
from app.stores.sql.spaces import ensure_tenant
from modelkin._version import __version__
from modelkin.core.kernels.choice import kernels

__all__ = ["DEFAULT_TENANT", "Resources", "open_resources"]

DEFAULT_TENANT = "default"
_ORPHAN_AGE = 3600.0
"""Seconds after which a blob that no row names is no write under way but what a crash left."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resources:
    """The stores and services of one process."""

    version: str
    settings: Settings
    database: Database
    library: Library
    tenant: Tenant
    spaces: SpaceService
    ingest: IngestService
    search: SearchService
    similarity: SimilarityService


@contextmanager
def open_resources(settings: Settings) -> Iterator[Resources]:
    """Open every store, bring the database up to date, load the kernels, and clean up after a
    crash.

    Raises:
        Unavailable: a store cannot be opened; says which and why.
    """
    database = Database(settings.database_url, timeout=settings.database_timeout)
    try:
        if settings.migrate:
            migrate(database)
        else:
            require_current(database)
        blobs = FileBlobs(settings.blob_folder)
        with database.writing() as session:
            tenant = ensure_tenant(session, DEFAULT_TENANT)
        _sweep(database, blobs)
        kernels().warm()
        library = Library(database, blobs)
        indexes = IndexRegistry()
        yield Resources(
            version=__version__,
            settings=settings,
            database=database,
            library=library,
            tenant=tenant,
            spaces=SpaceService(blobs, indexes),
            ingest=IngestService(blobs),
            search=SearchService(library, indexes),
            similarity=SimilarityService(library),
        )
    finally:
        database.close()


def _sweep(database: Database, blobs: FileBlobs) -> None:
    with database.reading() as session:
        swept = blobs.sweep(lambda keys: blob_keys(session, keys), older_than=_ORPHAN_AGE)
    if swept:
        log.info("removed %d supports that no model names", swept)
