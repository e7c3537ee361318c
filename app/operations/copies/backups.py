"""Backups: a copy of the database as of one moment, and of every support that it names.

The database comes first: a support that a change releases meanwhile is kept for
``MODELKIN_BLOB_GRACE_SECONDS``, so for that time all supports that the copy names exist. Only
supports that the previous backup lacks are copied.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path

from filelock import FileLock, Timeout

from app.infra.db.database import Database
from app.infra.db.migrations import revision_of
from app.infra.errors import Conflict, StorageFull, Unavailable
from app.infra.storage.blobs import BlobStore, DamagedBlob
from app.operations.copies.manifests import (
    BACKUPS,
    MANIFEST,
    SUPPORT_LIST,
    SUPPORTS,
    FileSum,
    Manifest,
    Support,
    copy_file,
    file_sum,
    find_backup,
    supports_of,
    whole_backups,
    write_file,
)
from app.operations.copies.postgres_copies import PostgresCopy
from app.operations.copies.sqlite_copies import SqliteCopy

__all__ = ["BackupService", "Made"]

_NAME = "%Y%m%dT%H%M%S.%fZ"
_MAX_READS = 16
"""Supports that are copied, and in memory, at a time."""


@dataclass(frozen=True, slots=True)
class Made:
    """A finished backup.

    Attributes:
        supports: the number of supports that it names.
        copied: the number of supports that were copied now, ``copied_bytes`` together.
        missing: keys of the supports that were missing or damaged.
    """

    path: Path
    supports: int
    copied: int
    copied_bytes: int
    missing: tuple[str, ...]


class BackupService:
    """Backups of one installation.

    Args:
        database: the database to copy, of this version of the service.
        blobs: the store of supports.
        secret: the file of a generated key, if there is one.
    """

    def __init__(
        self, database: Database, token: str, blobs: BlobStore, secret: Path | None
    ) -> None:
        self._database = database
        self._token = token
        self._blobs = blobs
        self._secret = secret

    def make(self, target: Path, *, keep: int) -> Made:
        """Make a backup in a folder of backups; delete older ones, and unfinished ones.

        A backup is finished even if a support is missing: a lost file, or one that a clean-up
        deletes meanwhile, must not leave an installation without backups.

        Args:
            keep: the most backups that the folder keeps.

        Raises:
            Conflict: another backup is being made there, or the folder has backups of another
                installation.
            Unavailable: something cannot be read or written; the backup stays unfinished.
        """
        with _lock(target):
            before = self._before(target)
            folder = target / BACKUPS / datetime.now(UTC).strftime(_NAME)
            folder.mkdir(parents=True)
            made = self._fill(folder, target / SUPPORTS, before)
            _prune(target, keep)
            return made

    def _before(self, target: Path) -> Iterator[Support]:
        """The supports of the newest backup, which need no new copy; none if it is damaged."""
        if not whole_backups(target):
            return iter(())
        try:
            backup, manifest = find_backup(target, None)
            before = supports_of(backup, manifest)
        except Unavailable:
            return iter(())
        if manifest.token != self._token:
            raise Conflict(f"{target} has backups of another installation: name another folder")
        return before

    def _fill(self, folder: Path, supports: Path, before: Iterator[Support]) -> Made:
        url = self._database.url
        files: list[Path] = []
        copy: SqliteCopy | PostgresCopy
        if url.get_backend_name() == "sqlite":
            copy = SqliteCopy(Path(str(url.database)).absolute(), folder)
        else:
            copy = PostgresCopy(url, folder)
        if self._secret is not None and self._secret.exists():
            copy_file(self._secret, folder / self._secret.name)
            files.append(folder / self._secret.name)
        made = self._copy_supports(copy.blob_keys(), folder, supports, before)
        files += [*copy.files, folder / SUPPORT_LIST]
        manifest = Manifest(
            made_at=folder.name,
            database=copy.kind,
            revision=revision_of(self._database),
            token=self._token,
            supports=made.supports,
            files={path.relative_to(folder).as_posix(): file_sum(path) for path in files},
            tables=copy.tables,
            missing=[*made.missing],
        )
        os.sync()  # all that the manifest names is on the disk before it
        temporary = folder / f"{MANIFEST}.part"
        temporary.write_text(manifest.model_dump_json(indent=1), encoding="ascii")
        temporary.replace(folder / MANIFEST)
        os.sync()
        return made

    def _copy_supports(
        self, keys: Iterator[str], folder: Path, supports: Path, before: Iterator[Support]
    ) -> Made:
        """Copy the supports that the previous backup lacks, some at a time."""
        count = copied = copied_bytes = 0
        missing: list[str] = []
        known = _with_known_sums(keys, supports, before)
        with (
            (folder / SUPPORT_LIST).open("w", encoding="ascii") as listed,
            ThreadPoolExecutor(_MAX_READS) as readers,
        ):
            while some := list(islice(known, _MAX_READS)):
                news = [key for key, total in some if total is None]
                made = dict(
                    zip(news, readers.map(partial(self._copy, supports), news), strict=True)
                )
                for key, total in some:
                    total = total or made[key]
                    if total is None:
                        missing.append(key)
                        continue
                    listed.write(f"{key}\t{total.size}\t{total.sha256}\n")
                    count += 1
                sizes = [total.size for total in made.values() if total is not None]
                copied, copied_bytes = copied + len(sizes), copied_bytes + sum(sizes)
        return Made(folder, count, copied, copied_bytes, tuple(missing))

    def _copy(self, supports: Path, key: str) -> FileSum | None:
        """Copy one support; None where it is lost or damaged."""
        try:
            return write_file(self._blobs.read(key), supports / key)
        except (KeyError, DamagedBlob):
            return None


def _with_known_sums(
    keys: Iterator[str], supports: Path, before: Iterator[Support]
) -> Iterator[tuple[str, FileSum | None]]:
    """The keys, with the checksums of the supports that the previous backup has; both ascend."""
    last = next(before, None)
    for key in keys:
        while last is not None and last.key < key:
            last = next(before, None)
        there = last is not None and last.key == key and _is_there(supports, last)
        yield key, last.sum if last is not None and there else None


@contextmanager
def _lock(target: Path) -> Iterator[None]:
    """Let one process at a time make a backup; put errors of the disk in an operator's words."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        with FileLock(target / ".lock", timeout=0):
            yield
    except Timeout:
        raise Conflict(f"another backup is being made in {target}") from None
    except OSError as error:
        error_type = StorageFull if error.errno == errno.ENOSPC else Unavailable
        raise error_type(f"the backup in {target} is unfinished: {error}") from error


def _is_there(supports: Path, support: Support) -> bool:
    try:
        return (supports / support.key).stat().st_size == support.sum.size
    except FileNotFoundError:
        return False


def _prune(target: Path, keep: int) -> None:
    """Delete all but the newest backups, and the supports that none of these names.

    While a backup is damaged no support is deleted: the supports of that backup are unknown.
    """
    kept = whole_backups(target)[-keep:]
    for folder in (target / BACKUPS).iterdir():
        if folder not in kept:
            shutil.rmtree(folder)
    try:
        lists = [supports_of(*find_backup(target, folder.name)) for folder in kept]
    except Unavailable:
        return
    named = {support.key for supports in lists for support in supports}
    for path in (target / SUPPORTS).rglob("*"):
        if path.is_file() and path.relative_to(target / SUPPORTS).as_posix() not in named:
            path.unlink()
