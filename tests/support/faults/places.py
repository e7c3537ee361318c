"""Where the services of a test keep their supports, and what a sweep leaves of these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import obstore

from app.infra.db.database import Database
from app.infra.storage.file_blobs import FileBlobs
from app.infra.storage.object_blobs import ObjectBlobs
from app.infra.storage.object_store import open_store
from app.operations.maintenance.blob_cleanup import ORPHAN_AGE_S, BlobCleanup
from app.tenancy.auth.tenants import store_token
from tests.support.backends import Backend
from tests.support.blob_files import age_files, blob_keys, named_keys

__all__ = ["Place", "assert_nothing_leaks"]

_LATER_S = 2 * ORPHAN_AGE_S


@dataclass(frozen=True, slots=True)
class Place:
    """A folder beside the database, or a bucket.

    Attributes:
        bucket: its URL; None for the folder.
    """

    bucket: str | None = None

    def settings(self, folder: Path) -> dict[str, Any]:
        """The settings of a service, or of a command, on the stores of a folder."""
        if self.bucket is None:
            return {"blob_url": f"file://{folder}/blobs"}
        return {"blob_url": self.bucket, "blob_cache_dir": f"{folder}/fetched"}

    def flags(self, folder: Path) -> list[str]:
        """The same on a command line."""
        return [f"--{k.replace('_', '-')}={value}" for k, value in self.settings(folder).items()]

    def later(self, folder: Path, token: str) -> FileBlobs | ObjectBlobs:
        """The supports as they are when a sweep takes none of them for a write under way."""
        if self.bucket is None:
            age_files(folder / "blobs", _LATER_S)
            return FileBlobs(folder / "blobs", token)
        return _LaterObjects(open_store(self.bucket), token)

    def keys(self, folder: Path, token: str) -> set[str]:
        """The keys of all that is there, unfinished files included."""
        if self.bucket is None:
            return blob_keys(folder / "blobs")
        return {*_supports(self.bucket, token)}


class _LaterObjects(ObjectBlobs):
    """A bucket whose clock is ahead: its objects keep the time that it gave them."""

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=_LATER_S)


def _supports(bucket: str, token: str) -> Iterator[str]:
    """All objects but those of the store itself: its id, its lineage and its clock."""
    for each in obstore.list(open_store(bucket), f"{token}/").collect():
        if each["path"].count("/") > 1:
            yield each["path"]


def assert_nothing_leaks(backend: Backend, folder: Path, place: Place) -> None:
    """Sweeps leave the supports that rows name, and no others."""
    with closing(Database(backend.url(folder), timeout=5)) as database:
        with database.reading() as session:
            token = store_token(session)
        blobs = place.later(folder, token)
        for _ in range(3):  # the first may find another lineage, the second notes
            BlobCleanup(database, blobs, grace_s=0).run_once()
        assert named_keys(database) == place.keys(folder, token)
