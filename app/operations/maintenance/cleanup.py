"""Clean-up: the background thread of each serving process.

The thread first warms up the indexes. Then, at a fixed interval, it drops the indexes of spaces
that another process has deleted, and prunes old tombstones. Any number of processes may run it at
once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from app.hubs.ingestion.files.downloads import Downloads
from app.infra.db.database import Database
from app.infra.errors import Unavailable
from app.infra.fault_log import FaultLog
from app.infra.heap import give_back
from app.models.index.registry import IndexRegistry
from app.models.index.repositories import changes
from app.models.index.sketch_folder import SketchFolder
from app.models.index.warmup import IndexWarmup
from app.models.spaces.repositories import spaces
from app.operations.maintenance.blob_cleanup import BlobCleanup

__all__ = ["Cleanup"]

_MIN_KEPT_TOMBSTONES = 10_000
"""Tombstones of a space that stay, at least.

An index further behind than these, and than all models of the space, is rebuilt as fast as it
could follow.
"""
_BATCH_SIZE = 10_000
"""Tombstones that are deleted while the space is locked."""

log = logging.getLogger(__name__)


class Cleanup:
    """Runs the clean-up of one process.

    Args:
        indexes: the indexes of this process.
        every: seconds between two runs.
        kept: the number of tombstones that stay, for each space.
        sketches: the sketches on this machine.
        downloads: the unfinished downloads on this machine.
        blobs: the clean-up of released blobs and orphans.
        steps: further steps of a run, by name; each gets the event that ends it early.
    """

    def __init__(
        self,
        database: Database,
        indexes: IndexRegistry,
        *,
        every: float,
        kept: int = _MIN_KEPT_TOMBSTONES,
        sketches: SketchFolder | None = None,
        downloads: Downloads | None = None,
        blobs: BlobCleanup | None = None,
        steps: Mapping[str, Callable[[threading.Event], object]] | None = None,
    ) -> None:
        self.warmup = IndexWarmup(database, indexes)
        self._database = database
        self._indexes = indexes
        self._every = every
        self._kept = kept
        self._sketches = sketches
        self._downloads = downloads
        self._blobs = blobs
        self._steps = steps or {}
        self._faults = FaultLog()
        self._stopping = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the clean-up in the background for the duration of the block."""
        self.warmup.announce()
        thread = threading.Thread(target=self._work, name="cleanup")
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def run_once(self) -> None:
        """Clean up once.

        Drop the indexes and sketches of deleted spaces, prune tombstones, delete the unfinished
        downloads of dead workers and unneeded blobs, run the other steps, cut the log of SQLite,
        and give free memory back to the system. A step that fails is logged, and stops no other
        step.
        """
        for name, step in self._all_steps().items():
            try:
                step()
            except Unavailable as error:
                self._faults.note(error)
            except Exception:
                log.exception("the step %r of the clean-up failed", name)

    def _all_steps(self) -> dict[str, Callable[[], object]]:
        steps: dict[str, Callable[[], object]] = {
            "indexes": self._forget,
            "tombstones": self._prune,
        }
        if self._downloads is not None:
            steps["downloads"] = self._downloads.sweep
        if self._blobs is not None:
            steps["blobs"] = partial(self._blobs.run_once, self._stopping)
        for name, step in self._steps.items():
            steps[name] = partial(step, self._stopping)
        steps["log of SQLite"] = self._database.truncate_log
        steps["free memory"] = give_back
        return steps

    def _work(self) -> None:
        try:
            self.warmup.run(self._stopping)
        except Exception:
            log.exception("the warm-up failed; indexes are built at their first query")
        while not self._stopping.wait(self._every):
            self.run_once()

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
            crowded = changes.spaces_to_compact(session, more_than=self._kept)
        for space_id, models, removals in crowded:
            keep = max(self._kept, models)
            if removals >= 2 * keep:  # in large batches
                while not self._stopping.is_set() and self._prune_some(space_id, keep):
                    pass

    def _prune_some(self, space_id: int, keep: int) -> bool:
        with self._database.writing() as session:
            pruned = changes.prune_tombstones(session, space_id, keep=keep, batch_size=_BATCH_SIZE)
        return pruned > 0
