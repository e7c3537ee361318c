"""The store of supports that the settings name, once it has shown that it is this database's.

Each store has an id, and the database knows it. So a service that is pointed at another bucket, an
empty folder or a disk that is not mounted does not start, rather than find every support lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.infra.db.database import Database
from app.infra.errors import Unavailable
from app.infra.storage.blobs import STORE_ID, BlobStore
from app.infra.storage.cached_blobs import CachedBlobs
from app.infra.storage.file_blobs import FileBlobs
from app.models.catalog.repositories.blob_sizes import newest_blobs
from app.settings import Settings
from app.tenancy.auth.tenants import claim_blob_store, find_blob_store, store_token

__all__ = [
    "make_store",
    "missing_rights",
    "open_blobs",
    "open_objects",
    "require_own_store",
    "require_store",
]

_ASKED_FOR = 32
"""Number of supports to look for. One must exist before a database without a store adopts this one;
a backup may lack some.
"""


def open_blobs(settings: Settings, database: Database) -> BlobStore:
    """Open the store of supports of a migrated database, and prepare it.

    Raises:
        Unavailable: the store cannot be used now, or is not the store that the database knows.
    """
    with database.reading() as session:
        token = store_token(session)
    blobs = make_store(settings, token)
    blobs.prepare()
    _require_known(settings, database, blobs, token)
    return blobs


def make_store(settings: Settings, token: str) -> BlobStore:
    """The store that the settings name; no request has been sent to it yet.

    Raises:
        Unavailable: the settings name a bucket, and the library for it is not installed.
    """
    cache, room = settings.support_cache_dir / token, settings.blob_cache_bytes
    if settings.blob_bucket is not None:
        return CachedBlobs(open_objects(settings.blob_bucket, token), cache, room)
    files = FileBlobs(settings.blob_dir, token)
    return files if room is None else CachedBlobs(files, cache, room)


def require_own_store(settings: Settings, database: Database, blobs: BlobStore) -> None:
    """Require a store that the database knows, or that it may still get to know.

    Raises:
        Unavailable: the store has another id, or none.
    """
    with database.reading() as session:
        token, known = store_token(session), find_blob_store(session)
    require_store(settings, blobs, token, known)


def require_store(settings: Settings, blobs: BlobStore, token: str, known: str | None) -> None:
    """Require that a store has the id that the database knows, if any."""
    if known is not None and (found := blobs.store_id()) != known:
        raise _another(settings, token, known, found)


def open_objects(url: str, token: str) -> BlobStore:
    """The supports of a bucket, for the token of a database.

    Raises:
        Unavailable: the library is not installed, or the URL is wrong.
    """
    with _library(url):
        from app.infra.storage.object_blobs import ObjectBlobs
        from app.infra.storage.object_store import open_store
    return ObjectBlobs(open_store(url), token, open_store(url, patient=True))


def missing_rights(url: str) -> list[str]:
    """The operations that a bucket refuses, by their names.

    Raises:
        Unavailable: the library is not installed, or the bucket cannot be used at all.
    """
    with _library(url):
        from app.infra.storage import bucket_rights
    return bucket_rights.missing_rights(url)


@contextmanager
def _library(url: str) -> Iterator[None]:
    """An import of what a service with a folder does not need."""
    try:
        yield
    except ModuleNotFoundError:
        raise Unavailable(
            f"MODELKIN_BLOB_URL={url} needs obstore: pip install 'modelkin-service[objects]'"
        ) from None


def _require_known(settings: Settings, database: Database, blobs: BlobStore, token: str) -> None:
    """Require the store that the database knows; the first one makes itself known."""
    require_own_store(settings, database, blobs)
    with database.reading() as session:
        if find_blob_store(session) is not None:
            return
        newest = newest_blobs(session, limit=_ASKED_FOR)
    if newest and blobs.store_id() is None and all(blobs.size(key) is None for key in newest):
        raise Unavailable(
            f"the database has supports, and {_place(settings)}/{token} has none of the newest "
            f"{len(newest)}: set MODELKIN_BLOB_URL as before; to move them, back up and restore"
        )
    found = blobs.claim_store_id(secrets.token_hex(16))  # before the database has it
    with database.writing() as session:
        known = claim_blob_store(session, found)
    if known != found:
        raise _another(settings, token, known, found)


def _another(settings: Settings, token: str, known: str, found: str | None) -> Unavailable:
    file = f"{_place(settings)}/{token}/{STORE_ID}"
    has = "has none" if found is None else f"is {found}"
    return Unavailable(
        f"the database knows the store of its supports as {known}, and {file} {has}: set "
        f"MODELKIN_BLOB_URL as before; if all its supports were moved there, write {known} into "
        "that file"
    )


def _place(settings: Settings) -> str:
    return settings.blob_bucket or str(Path(settings.blob_dir))
