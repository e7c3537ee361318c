"""Sizes of blobs that are older than stored sizes, so that quotas count these blobs, too."""

from __future__ import annotations

import threading

from app.infra.db.database import Database
from app.infra.errors import SpaceNotFound
from app.infra.storage.blobs import BlobStore
from app.models.catalog.repositories import blob_sizes
from app.models.spaces.repositories import spaces

__all__ = ["BlobSizes"]

_BATCH_SIZE = 500


class BlobSizes:
    """Measures blobs, a batch at a time.

    Args:
        database: the database that gets the sizes.
        blobs: measured. A blob that is lost has size 0, until a repair stores it again.
    """

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self._database = database
        self._blobs = blobs

    def run_once(self, stopping: threading.Event) -> None:
        """Measure all blobs without a size; end early when ``stopping`` is set.

        Raises:
            Unavailable: a store cannot be used now.
        """
        while not stopping.is_set() and self._measure_some():
            pass

    def _measure_some(self) -> bool:
        with self._database.reading() as session:
            found = blob_sizes.unmeasured_blobs(session, limit=_BATCH_SIZE)
        sizes: dict[int, dict[str, int]] = {}
        for key, space_id in found.items():
            sizes.setdefault(space_id, {})[key] = self._blobs.size(key) or 0
        recorded = [self._is_recorded(*measured) for measured in sizes.items()]
        return any(recorded)  # those of deleted spaces have none until their rows are gone

    def _is_recorded(self, space_id: int, sizes: dict[str, int]) -> bool:
        """Whether the space is there still, and its blobs have their sizes now."""
        with self._database.writing() as session:
            space = spaces.find_space_by_id(session, space_id)
            if space is None:
                return False
            try:
                space = spaces.lock_space(session, space)
            except SpaceNotFound:
                return False
            spaces.add_support_bytes(session, space, blob_sizes.set_sizes(session, sizes))
        return True
