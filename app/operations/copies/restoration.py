"""Restoration: the database and the supports of a backup, where there is nothing yet.

Every file but the supports is compared with its sum before the first one is written. The database
comes last, in one step: a restoration that was interrupted leaves none, and nothing starts on half
of the supports.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path

from sqlalchemy.engine import make_url

from app.blob_stores import make_store
from app.infra.db.database import Database
from app.infra.db.migrations import is_known, migrate, standing_of
from app.infra.errors import Conflict, Unavailable
from app.infra.storage.blobs import BlobStore
from app.operations.copies.manifests import (
    SUPPORTS,
    FileSum,
    Manifest,
    Support,
    check_file,
    copy_file,
    find_backup,
    supports_of,
)
from app.operations.copies.postgres_copies import has_tables, restore_postgres
from app.operations.copies.sqlite_copies import restore_sqlite
from app.settings import Settings
from app.tenancy.auth.repository import end_all_sessions
from app.tenancy.auth.tenants import forget_blob_store

__all__ = ["restore"]

_OF_THE_DISK = "lost+found"
"""The folder that a fresh ext4 volume has."""
_MAX_PUTS = 16
"""Supports that go to an object store at a time."""


def restore(
    backups: Path,
    name: str | None,
    settings: Settings,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Manifest:
    """Restore a backup to the places of the settings.

    Args:
        backups: a folder of backups.
        name: the name of a backup; by default the newest that is finished.
        progress: called with the number of restored supports, and of all.

    Raises:
        NotFound: there is no such backup.
        Conflict: the backup is of the other kind of database, or the place is not empty.
        Unavailable: the backup is damaged or of a newer version, or something cannot be written.
    """
    backup, manifest = find_backup(backups, name)
    url = make_url(settings.database_url)
    if url.get_backend_name() != manifest.database:
        raise Conflict(f"the backup is of {manifest.database}; the settings name another database")
    if not is_known(manifest.revision):
        is_newer = standing_of(manifest.revision) == "ahead"
        raise Unavailable(
            f"the backup is of a {'newer version' if is_newer else 'version before 0.1.0'} "
            f"({manifest.revision}): restore it with that version of the service"
        )
    _require_nothing(settings, manifest)
    for file, total in manifest.files.items():
        check_file(backup / file, total)
    try:
        _restore_supports(backup, backups / SUPPORTS, manifest, settings, progress)
        secret = settings.encryption_key_file
        if secret is not None and secret.name in manifest.files:
            copy_file(backup / secret.name, secret)
        os.sync()  # before there is a database that names the supports
        if manifest.database == "sqlite":
            restore_sqlite(backup, Path(str(url.database)).absolute())
    except OSError as error:
        raise Unavailable(f"the backup cannot be restored: {error}") from error
    with closing(Database(url, timeout=settings.database_timeout_seconds)) as database:
        if manifest.database == "postgresql":
            migrate(
                database,
                revision=manifest.revision,
                fill=lambda c: restore_postgres(backup, manifest, c.connection.driver_connection),
            )
        migrate(database)
        with database.writing() as session:
            forget_blob_store(session)  # the id of the backup's store; this store gets another
            end_all_sessions(session)  # their visitors may have signed out since
    os.sync()
    return manifest


def _require_nothing(settings: Settings, manifest: Manifest) -> None:
    folders = [settings.blob_dir]
    if make_url(settings.database_url).get_backend_name() == "sqlite":
        folders.insert(0, settings.data_dir)
    elif has_tables(make_url(settings.database_url)):
        raise Conflict("the database has tables of a service: name one that is empty")
    for folder in folders:
        if folder.exists() and any(path.name != _OF_THE_DISK for path in folder.iterdir()):
            raise Conflict(f"{folder} is not empty: name a folder that is, or that is not there")
    if settings.blob_bucket is not None:
        with closing(make_store(settings, manifest.token)) as blobs:
            if blobs.store_id() is not None or next(blobs.keys(), None) is not None:
                raise Conflict(
                    f"{settings.blob_bucket} has supports of this installation: name a prefix "
                    f"that is empty"
                )


def _restore_supports(
    backup: Path,
    supports: Path,
    manifest: Manifest,
    settings: Settings,
    progress: Callable[[int, int], None],
) -> None:
    listed = supports_of(backup, manifest)
    if settings.blob_bucket is None:
        settings.blob_dir.mkdir(parents=True, exist_ok=True)
        restored = _copy(listed, supports, settings.blob_dir)
    else:
        restored = _send(listed, supports, make_store(settings, manifest.token))
    for done, (support, total) in enumerate(restored):
        progress(done, manifest.supports)
        if total != support.sum:
            raise Unavailable(f"the backup is damaged: {supports / support.key} has changed")


def _copy(
    listed: Iterable[Support], supports: Path, folder: Path
) -> Iterator[tuple[Support, FileSum]]:
    for support in listed:
        yield support, copy_file(supports / support.key, folder / support.key)


def _send(
    listed: Iterable[Support], supports: Path, blobs: BlobStore
) -> Iterator[tuple[Support, FileSum]]:
    """Put supports into an object store, some at a time."""

    def send(support: Support) -> tuple[Support, FileSum]:
        data = (supports / support.key).read_bytes()
        total = FileSum(size=len(data), sha256=hashlib.sha256(data).hexdigest())
        if total == support.sum:
            blobs.write(support.key, data)
        return support, total

    with closing(blobs), ThreadPoolExecutor(_MAX_PUTS) as senders:
        listed = iter(listed)
        while some := list(islice(listed, _MAX_PUTS)):
            yield from senders.map(send, some)
