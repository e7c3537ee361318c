"""Warm-up: a new process loads its indexes in the background, before queries need them.

The largest space comes first, and as many are loaded as fit into memory. An index that is not
loaded is built at the first query of its space, so the warm-up only saves time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from app.infra.db.database import Database
from app.infra.errors import Unavailable, explain
from app.models.index.change_feed import ChangeFeed
from app.models.index.registry import IndexRegistry
from app.models.index.space_index import ChangedModels, index_bytes
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces

__all__ = ["IndexWarmup", "WarmupProgress"]

T = TypeVar("T")

_RETRY_INTERVAL_S = 1.0
"""Seconds between tries while the database cannot be read."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WarmupProgress:
    """The progress of the warm-up.

    Attributes:
        done: whether there is nothing left to load.
        spaces, models: the numbers to load in all.
        spaces_loaded, models_loaded: the numbers loaded so far.
    """

    done: bool = True
    spaces: int = 0
    spaces_loaded: int = 0
    models: int = 0
    models_loaded: int = 0


class IndexWarmup:
    """Loads the indexes of one process, once.

    Args:
        database: the database to read from.
    """

    def __init__(self, database: Database, indexes: IndexRegistry) -> None:
        self._database = database
        self._indexes = indexes
        self._progress = WarmupProgress()
        self._stopping = threading.Event()

    @property
    def progress(self) -> WarmupProgress:
        """The progress; "done" in a process without a warm-up, and before :meth:`announce`."""
        return self._progress

    def announce(self) -> None:
        """Report "not done" from now on, until :meth:`run` has ended."""
        self._progress = WarmupProgress(done=False)

    def run(self, stopping: threading.Event) -> None:
        """Load until all is done or ``stopping`` is set; an unexpected error ends it too."""
        began = time.monotonic()
        self._stopping = stopping
        try:
            self._run()
        finally:
            self._progress = replace(self._progress, done=not stopping.is_set())
        loaded = self._progress
        if loaded.done and loaded.spaces:
            seconds = time.monotonic() - began
            counts = loaded.models_loaded, loaded.spaces_loaded
            log.info("loaded the signatures of %d models in %d spaces in %.1f s", *counts, seconds)

    def _run(self) -> None:
        wanted = self._retry(self._plan) or []
        models = sum(space.models for space in wanted)
        self._progress = WarmupProgress(False, spaces=len(wanted), models=models)
        for number, space in enumerate(wanted, start=1):
            before = self._progress.models_loaded
            if self._retry(partial(self._load, space)) is None:
                return
            loaded = before + space.models
            self._progress = replace(self._progress, spaces_loaded=number, models_loaded=loaded)

    def _plan(self) -> list[SpaceRecord]:
        """The spaces to load: all that fit into memory and are not empty, the largest first."""
        with self._database.reading() as session:
            existing = [each for each in spaces.all_spaces(session) if each.kind == "supports"]
        existing = sorted(existing, key=lambda space: -index_bytes(space.signature, space.models))
        free_bytes, wanted = self._indexes.max_bytes, []
        for space in existing:
            needed = index_bytes(space.signature, space.models)
            if 0 < needed <= free_bytes:
                wanted.append(space)
                free_bytes -= needed
        return wanted

    def _load(self, space: SpaceRecord) -> bool:
        """Load one space; False if it has been deleted."""
        before = self._progress
        with self._database.reading() as session:
            now = spaces.find_space_by_id(session, space.id)
            if now is None:
                return False
            feed = _CountingFeed(ChangeFeed(session, space.id), self.count_loaded)
            try:
                self._indexes.snapshot_at(space.id, space.signature, now.version, feed)
            except Unavailable:
                self._progress = before
                raise
        return True

    def count_loaded(self, models: int) -> None:
        if self._stopping.is_set():
            raise Unavailable("the service is stopping")
        loaded = min(self._progress.models_loaded + models, self._progress.models)
        self._progress = replace(self._progress, models_loaded=loaded)

    def _retry(self, action: Callable[[], T]) -> T | None:
        """Repeat ``action`` while the database is unavailable; None when the service stops."""
        while not self._stopping.is_set():
            try:
                return action()
            except Unavailable as error:
                log.info("indexes cannot be loaded now: %s", explain(error))
                self._stopping.wait(_RETRY_INTERVAL_S)
        return None


@dataclass(frozen=True, slots=True)
class _CountingFeed:
    """A feed that reports how many models were read from it."""

    feed: ChangeFeed
    add: Callable[[int], None]

    @property
    def compacted_version(self) -> int:
        return self.feed.compacted_version

    @property
    def models(self) -> int:
        return self.feed.models

    def changed_since(self, since: int) -> Iterable[ChangedModels]:
        for changed in self.feed.changed_since(since):
            yield changed
            self.add(changed.ids.size)

    def removed_since(self, since: int) -> Iterable[int]:
        return self.feed.removed_since(since)
