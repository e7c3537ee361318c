"""Housekeeping: what each serving process does beside its requests, in one thread.

First it loads indexes; then, every so often, it lets go those of spaces that another process has
deleted, and deletes removals that nobody needs. Any number of processes may do so at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from app.errors import Unavailable
from app.hubs.ingestion.downloads import Downloads
from app.index import change_repository
from app.index.registry import IndexRegistry
from app.index.sketch_files import SketchFiles
from app.index.warmup import IndexWarmup
from app.infra.db.database import Database
from app.spaces import repository as spaces

__all__ = ["Cleanup"]

_KEPT = 10_000
"""Removals of a space that are kept at least: who is further behind than these, and than all that
the space holds, builds its index anew no slower than it would follow.
"""
_AT_ONCE = 10_000
"""Removals that are deleted while the space is locked."""

log = logging.getLogger(__name__)


class Cleanup:
    """Keeps the house of one process.

    Args:
        database: the truth.
        indexes: of this process.
        every: seconds from one round to the next.
        kept: removals of each space that stay.
        sketches: those on this machine.
        downloads: the unfinished ones on this machine.
    """

    def __init__(
        self,
        database: Database,
        indexes: IndexRegistry,
        *,
        every: float,
        kept: int = _KEPT,
        sketches: SketchFiles | None = None,
        downloads: Downloads | None = None,
    ) -> None:
        self.loading = IndexWarmup(database, indexes)
        self._database = database
        self._indexes = indexes
        self._every = every
        self._kept = kept
        self._sketches = sketches
        self._downloads = downloads
        self._stopping = threading.Event()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Do all this in the background, as long as the block runs."""
        self.loading.announce()
        thread = threading.Thread(target=self._work, name="housekeeping")
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def round(self) -> None:
        """Forget the indexes and the sketches of deleted spaces, delete old removals, and what
        workers that died have begun to download.

        Raises:
            Unavailable: the database cannot be used now.
        """
        self._forget()
        self._prune()
        if self._downloads is not None:
            self._downloads.sweep()

    def _work(self) -> None:
        try:
            self.loading.run(self._stopping)
        except Exception:
            log.exception("indexes are not loaded any more, but built when they are asked for")
        while not self._stopping.wait(self._every):
            try:
                self.round()
            except Unavailable as error:
                log.info("no housekeeping now: %s", error)
            except Exception:
                log.exception("housekeeping failed")

    def _forget(self) -> None:
        indexed = self._indexes.space_ids()
        with self._database.reading() as session:
            existing = spaces.space_ids(session)
        for space_id in set(indexed) - existing:
            self._indexes.forget(space_id)
        if self._sketches is not None:
            self._sketches.sweep(existing)

    def _prune(self) -> None:
        with self._database.reading() as session:
            crowded = change_repository.spaces_to_compact(session, more_than=self._kept)
        for space_id, models, removals in crowded:
            keep = max(self._kept, models)
            if removals >= 2 * keep:  # not a few at a time
                while not self._stopping.is_set() and self._prune_some(space_id, keep):
                    pass

    def _prune_some(self, space_id: int, keep: int) -> bool:
        with self._database.writing() as session:
            pruned = change_repository.prune_tombstones(
                session, space_id, keep=keep, batch_size=_AT_ONCE
            )
        return pruned > 0
